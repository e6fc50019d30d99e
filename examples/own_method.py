"""Your own method: a weighting function and a row of data, in one file outside the package.

Weights here grow with the square of the score: a text that looks twice as good weighs four times as
much in the exponent. After `register_method` the name works everywhere; this file is also a command
line that knows it: python examples/own_method.py generate "Target: 15 Numbers: 10, 1, 6" \
    --task countdown --method squared

A package can offer methods through the entry-point group `s3dlm.methods` instead.
"""

import sys

import s3dlm
from s3dlm.search.weigh import WEIGHTS, Weighting

WEIGHTS["squared"] = Weighting(lambda now: now.lam * now.score**2)

s3dlm.register_method(
    "squared",
    s3dlm.Method(
        summary="s3 with weights exp(λ·score²), and the best text seen",
        branches=True,
        weight="squared",
        defaults={"resampling": "systematic", "selection": "best_seen"},
    ),
)

if __name__ != "__main__":
    pass  # a worker process of `eval` imports this file for the method alone
elif len(sys.argv) > 1:
    from s3dlm.cli.main import main

    main()
else:
    result = s3dlm.generate(
        "tiny", "Target: 15 Numbers: 10, 1, 6", task="countdown", method="squared", lam=20.0
    )
    print(result)
    print("answer:", result.answer)
