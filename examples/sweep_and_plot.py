"""A sweep and its picture: accuracy against NFE, over the number of particles.

The same on the command line:
s3dlm eval --task countdown --method best_of_k,s3 --set particles=1,2,4 --limit 50 --out runs/sweep
"""

import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import s3dlm
from s3dlm import tasks
from s3dlm.evaluation import plan as plans
from s3dlm.evaluation import records
from s3dlm.evaluation.plan import Plan
from s3dlm.evaluation.run import evaluate

problems = int(sys.argv[1]) if len(sys.argv) > 1 else 20
folder = Path(tempfile.mkdtemp())
model = s3dlm.load("tiny")
defaults = plans.recommendations("tiny")
sweeps = {"particles": [1, 2, 4]}
conditions = plans.grid(["countdown"], ["best_of_k", "s3"], defaults, {"steps": 16}, sweeps)
loaded = {"countdown": tasks.load(tasks.get("countdown"), prompt_style="tiny", limit=problems)}
evaluate(model, Plan(conditions, loaded), folder / "run")

points = defaultdict(list)
by_spec = {condition.spec: condition for condition in conditions}
found = list(records.read(folder / "run"))
for record in found:
    condition = by_spec[record.spec]
    points[condition.label, condition.children].append((record.nfe, record.correct))

import matplotlib  # noqa: E402

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

figure, axis = plt.subplots()
for label in ("best_of_k", "s3"):
    some = sorted((k, v) for k, v in points.items() if k[0] == label)
    axis.plot(
        [sum(n for n, _ in v) / len(v) for _, v in some],
        [sum(c for _, c in v) / len(v) for _, v in some],
        marker="o",
        label=label,
    )
axis.set(xscale="log", xlabel="NFE per problem", ylabel="accuracy")
axis.legend()
figure.savefig(folder / "sweep.svg")
plt.close(figure)
print(len(found), "records;", folder / "sweep.svg")
