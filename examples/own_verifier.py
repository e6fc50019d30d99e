"""Your own verifier: a function from (question, text, confidence) to a number, higher is better."""

import s3dlm


def short_and_sure(question: str, text: str, confidence: float | None) -> float:
    """Prefers answers that are given, sure and short."""
    given = "answer" in text.lower()
    return 0.5 * given + 0.3 * (confidence or 0.0) + 0.2 / (1 + len(text) / 40)


model = s3dlm.load("tiny")
settings = s3dlm.Settings(gen_length=64, steps=16, lam=4.0)
result = s3dlm.generate(
    model, "Target: 45 Numbers: 8, 7, 11", task="countdown", settings=settings,
    verifier=short_and_sure,
)  # fmt: skip
for survivor in result.survivors:
    print(f"{survivor.score:.3f}  {survivor.answer}")
print("chosen:", result.answer)
