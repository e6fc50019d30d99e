"""What a model wrote, without the tokens by which it stopped.

A diffusion model fills its whole canvas, so a short answer ends in a run of end tokens. That run
says "I am done" and nothing else; what remains *inside* the text is what can be judged.
"""

from __future__ import annotations

import re

END_TOKENS = ("<|endoftext|>", "<|eot_id|>", "<|im_end|>")
MASK_TOKENS = ("<|mdm_mask|>", "<|mask|>")


# The run is matched in the reversed text: there it stands first, so one anchored match finds it.
_RUN_BACKWARDS = re.compile(
    "(?:" + "|".join(re.escape(token[::-1]) for token in END_TOKENS) + r"|\s++)++"
)


def strip_end_tokens(text: str) -> str:
    """The text without its trailing run of end tokens and without space around it."""
    if not text.rstrip().endswith("|>"):
        return text.strip()
    run = _RUN_BACKWARDS.match(text[::-1])
    return (text[: len(text) - run.end()] if run else text).strip()
