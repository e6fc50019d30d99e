"""One verifier call for the texts of many searches.

A search whose verifier takes many texts at once does not call it: it yields an `Unscored` and goes on
when its texts are scored. Whoever drives several searches has all of them verified together. A call
that fails is repeated for each search by itself, so that an error ends only the search it belongs to.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from s3dlm.errors import VerifierError
from s3dlm.search.score import Unscored


def verify(requests: Sequence[Unscored]) -> list[VerifierError | None]:
    """Score the texts of all requests; the error of each, or None."""
    errors: dict[int, VerifierError] = {}
    for group in _groups(requests):
        started = time.perf_counter()
        try:
            _verify_together([requests[at] for at in group])
        except VerifierError as error:
            if len(group) == 1:
                errors[group[0]] = error
            else:
                errors |= _one_by_one(requests, group)
        _share_time([requests[at] for at in group], time.perf_counter() - started)
    return [errors.get(at) for at in range(len(requests))]


def _groups(requests: Sequence[Unscored]) -> Iterable[list[int]]:
    """Requests with the same verifier; one that compares texts must not see those of others."""
    found: dict[object, list[int]] = {}
    for at, one in enumerate(requests):
        verifier = one.scorer.verifier
        group = ("alone", at) if verifier.compares_texts else id(verifier)
        found.setdefault(group, []).append(at)
    return found.values()


def _verify_together(requests: Sequence[Unscored]) -> None:
    """One call for every distinct question, text and confidence."""
    first, scorer = requests[0], requests[0].scorer
    rows = [(one.scorer.question, *key) for one in requests for key in one.keys]
    distinct = list(dict.fromkeys(rows))
    scores = scorer.verified(distinct, first.where)
    known = dict(zip(distinct, scores, strict=True))
    for one in requests:
        one.scorer.learn({key: known[one.scorer.question, *key] for key in one.keys})


def _one_by_one(requests: Sequence[Unscored], group: Sequence[int]) -> dict[int, VerifierError]:
    errors = {}
    for at in group:
        try:
            _verify_together([requests[at]])
        except VerifierError as error:
            errors[at] = error
    return errors


def _share_time(requests: Sequence[Unscored], seconds: float) -> None:
    """Each search pays for its share of the texts."""
    total = sum(len(one.keys) for one in requests)
    for one in requests:
        one.scorer.seconds += seconds * len(one.keys) / total
