"""An OpenAI-compatible server whose requests share forwards, and a page to watch the search."""
