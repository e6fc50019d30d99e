"""The page that shows a search: its files, and one self-contained page for recorded traces."""
