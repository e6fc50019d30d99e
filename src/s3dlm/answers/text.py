"""What a model wrote, without the tokens by which it stopped.

A diffusion model fills its whole canvas, so a short answer ends in a run of end tokens. That run
says "I am done" and nothing else; what remains *inside* the text is what can be judged.
"""

from __future__ import annotations

END_TOKENS = ("<|endoftext|>", "<|eot_id|>", "<|im_end|>")
MASK_TOKENS = ("<|mdm_mask|>", "<|mask|>")


def strip_end_tokens(text: str) -> str:
    """The text without its trailing run of end tokens and without space around it."""
    end = len(text)
    while True:
        # The two tokens of LLaDA come first and need no table: this loop runs for every score.
        while text.endswith("<|endoftext|>", 0, end):
            end -= 13
        if text.endswith("<|eot_id|>", 0, end):
            end -= 10
        elif end and text[end - 1].isspace():
            end -= 1
        elif text.endswith("<|im_end|>", 0, end):
            end -= 10
        else:
            return text[:end].strip()
