"""What is a verifier worth? Score outputs of any model, from anywhere; no weights are needed.

The same on the command line: s3dlm score outputs.jsonl --task gsm8k
"""

import json
import tempfile
from pathlib import Path

from s3dlm.evaluation.score import score_file

OUTPUTS = [  # question, output, gold: as any model behind any interface wrote them
    ("What is 3 + 4?", "3 + 4 = 7. Therefore the answer is \\boxed{7}.", "7"),
    ("What is 3 + 4?", "3 + 4 = 9. Therefore the answer is \\boxed{9}.", "7"),
    ("What is 12 * 4?", "Step 1: 12 * 4 = 48. Thus \\boxed{48}.", "48"),
    ("What is 12 * 4?", "I think it is forty or so", "48"),
    ("What is 90 / 6?", "90 / 6 = 15, so \\boxed{15}.", "15"),
    ("What is 90 / 6?", "the the the the the the the the", "15"),
]

path = Path(tempfile.mkdtemp()) / "outputs.jsonl"
rows = [{"question": q, "output": output, "gold": gold} for q, output, gold in OUTPUTS]
path.write_text("".join(json.dumps(row) + "\n" for row in rows))

report = score_file(path, "gsm8k")
print(
    f"{report.outputs} outputs to {report.questions} questions, {report.accuracy['fixed']:.0%} right"
)
for part in report.components:
    # AUC: how often a right output has the higher score; 0.5 is a coin.
    print(f"{part.name:15} weight {part.weight:.2f}  AUC {part.auc.value:.2f}")
