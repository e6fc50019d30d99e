"""What a model wrote, without the tokens by which it stopped.

A diffusion model fills its whole canvas, so a short answer ends in a run of end tokens. That run
says "I am done" and nothing else; what remains *inside* the text is what can be judged.
"""

from __future__ import annotations

END_TOKENS = ("<|endoftext|>", "<|eot_id|>", "<|im_end|>")
MASK_TOKENS = ("<|mdm_mask|>", "<|mask|>")


def strip_end_tokens(text: str) -> str:
    """The text without its trailing run of end tokens and without space around it."""
    if not text.endswith("|>") and "|>" not in text[-40:]:
        return text.strip()
    end = _end_of_content(text)
    return text[:end].strip()


def _end_of_content(text: str) -> int:
    """Where the trailing run of end tokens and white space begins; one backward pass."""
    end = len(text)
    while end:
        if text[end - 1].isspace():
            end -= 1
            continue
        token = next((t for t in END_TOKENS if text.endswith(t, 0, end)), None)
        if token is None:
            break
        end -= len(token)
    return end
