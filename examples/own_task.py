"""Your own task: a JSONL file with "question" and "gold", and the name of a verifier profile.

The same file works on the command line: s3dlm eval --task additions.jsonl:gsm8k --out runs/mine
"""

import json
import tempfile
from pathlib import Path

import s3dlm
from s3dlm import answers, tasks

folder = Path(tempfile.mkdtemp())
problems = [(f"Tom has {a} cards. He gets {b} from Sam. How many has he now?", a + b)
            for a, b in ((3, 4), (10, 7), (25, 8))]  # fmt: skip
path = folder / "additions.jsonl"
path.write_text("".join(json.dumps({"question": q, "gold": str(g)}) + "\n" for q, g in problems))

name = f"{path}:gsm8k"  # whose verifier and whose kind of answer
model = s3dlm.load("tiny")
task = tasks.get(name)
samples = tasks.load(task, prompt_style=model.defaults.prompt_style).samples
results = s3dlm.generate_batch(
    model,
    [sample.question for sample in samples],
    task=name,
    settings=s3dlm.Settings(gen_length=64, steps=16),
    sample_ids=[sample.id for sample in samples],
)
right = [
    answers.grade(task.answer, result.text, sample.gold, "fixed", sample.question)
    for sample, result in zip(samples, results, strict=True)
]
for sample, result, ok in zip(samples, results, right, strict=True):  # no \\boxed{}, no mark
    print("right" if ok else "wrong", "gold", sample.gold, "text", result.text)
print(f"{sum(right):.0f} of {len(right)} right")
