"""Your own task: a file of JSON lines with "question" and "gold", and the name of a similar task.

The same file works on the command line: s3dlm eval --task stamps.jsonl:arithmetic --out runs/mine
"""

import json
import tempfile
from pathlib import Path

import s3dlm
from s3dlm import tasks
from s3dlm.answers.grading import grade

folder = Path(tempfile.mkdtemp())
problems = [
    (f"Leo has {a} bags of {b} stamps. He sells {c} of them. How many stamps does Leo have now?", a * b - c)
    for a, b, c in ((2, 6, 8), (5, 4, 8))
]  # fmt: skip
path = folder / "stamps.jsonl"
path.write_text("".join(json.dumps({"question": q, "gold": str(g)}) + "\n" for q, g in problems))

name = f"{path}:arithmetic"  # the task whose verifier and answer format to use
model = s3dlm.load("tiny")
task = tasks.get(name)
samples = tasks.load(task, prompt_style=model.defaults.prompt_style).samples
results = s3dlm.generate_batch(
    model,
    [sample.question for sample in samples],
    task=name,
    method="revise",
    sample_ids=[sample.id for sample in samples],
)
right = [
    grade(task.answer, result.text, sample.gold, "fixed", sample.question)
    for sample, result in zip(samples, results, strict=True)
]
for sample, result, ok in zip(samples, results, right, strict=True):
    print("right" if ok else "wrong", "gold", sample.gold, "text", result.text)
print(f"{sum(right):.0f} of {len(right)} right")
