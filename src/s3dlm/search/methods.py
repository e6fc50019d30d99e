"""The methods of this package, side by side; those of `extras/` are entry points, as a stranger's are."""

from __future__ import annotations

from s3dlm.search.method import DEFAULT as DEFAULT
from s3dlm.search.method import METHODS as METHODS
from s3dlm.search.method import Method as Method
from s3dlm.search.method import find_method as find_method
from s3dlm.search.method import register_method as register_method
from s3dlm.search.revise import Restarts, Revise
from s3dlm.search.samples import (
    AdaptiveVote,
    Baseline,
    BestOfK,
    Greedy,
    Tilting,
    VerifiedBestOfK,
)
from s3dlm.search.smc import S3, S3Paper, S3Verified, TopN, Twisted

for _method in (
    Revise, Restarts, S3, S3Paper, S3Verified, TopN, Tilting, BestOfK, VerifiedBestOfK,
    AdaptiveVote, Baseline, Greedy, Twisted,
):  # fmt: skip
    register_method(_method)
