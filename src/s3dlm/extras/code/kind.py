"""Programs as answers: found, spelled alike, and graded by hidden tests in the sandbox."""

from __future__ import annotations

from s3dlm.answers.grading import Grader
from s3dlm.answers.kinds import AnswerKind
from s3dlm.errors import SettingsError
from s3dlm.extras.code import programs
from s3dlm.extras.code.sandbox import Verdict, shared
from s3dlm.extras.code.verifier import CodeVerifier
from s3dlm.verifier import NamedVerifier


def verdict(text: str, gold: object, question: str) -> Verdict:
    """Whether the program in a text passes the hidden tests, and if not, why."""
    match gold:
        case {"setup": str(setup), "tests": str(tests), "remote": [*remote]}:
            source = programs.source_in(text, question)
            if source is None:
                return Verdict(False, "no code")
            return shared().test(source, tests, setup=setup, remote=[str(name) for name in remote])
    raise SettingsError(
        f"gold={gold!r} is no code gold; give {{'setup': …, 'tests': …, 'remote': [names]}}"
    )


KIND = AnswerKind(
    programs.source_in, programs.canonical, whole=True, longest=programs.LONGEST_CODE, runs=True
)
GRADER = Grader(  # pass@1 of one sample: the hidden tests, run in the sandbox
    lambda text, gold, question: verdict(text, gold, question).passed
)
VERIFIER = NamedVerifier(lambda task: CodeVerifier(), "runs the examples of the question")
