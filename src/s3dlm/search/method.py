"""A method: a class with its own settings and one coroutine, `search`.

`Method` is what all have in common. A method of your own is a subclass in a file
(`--method FILE.py:NAME`), registered by `register_method`, or offered by an installed package under the
entry-point group `s3dlm.methods`; commands, server, viewer and evaluation then know it.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, model_validator

from s3dlm.errors import SettingsError
from s3dlm.inputs import Registry
from s3dlm.search.expand import CHILD_SAMPLINGS, OVERSAMPLING
from s3dlm.search.options import FROZEN, OneOf, Share, Size, meaning, more, setting
from s3dlm.search.particles import Ints, Particles
from s3dlm.search.resample import RESAMPLERS
from s3dlm.search.rounds import attempt, restarted, rounds
from s3dlm.search.run import Run
from s3dlm.search.select import SELECTIONS
from s3dlm.search.step import Outcome

if TYPE_CHECKING:
    from s3dlm.diffusion.decoding import Decoding

DEFAULT = "revise"  # the method wherever none is named: what is recommended
Verified = Literal["never", "at the end", "every step"]

# Settings that several methods have, each with a default of its own.
Population = Annotated[Size, meaning("partly denoised answers kept after every step (N)")]
Branching = Annotated[int, meaning("children per particle and step (b)", ge=1, le=1024)]
Lambda = Annotated[float, meaning("how strongly scores tilt the weights: λ in exp(λ·score)", ge=0)]
Resampler = Annotated[
    str, OneOf("resampling", RESAMPLERS), meaning("how survivors are drawn from the weights")
]
LookAheads = Annotated[
    int, meaning("texts read per child, from one forward pass; the best counts", ge=1, le=1000)
]
ChildSampling = Annotated[
    str,
    OneOf("child_sampling", CHILD_SAMPLINGS),
    meaning("whether the children of a step must differ", shown=False),
]
EssThreshold = Annotated[
    Share | None,
    meaning("resample only when the effective sample size falls below this share", shown=False),
]
Cadence = Annotated[
    Literal["step", "block"],
    meaning("branch, score and resample at every step or at block ends", shown=False),
]
Ending = Annotated[
    str,
    OneOf("selection", SELECTIONS),
    meaning("how the answer is chosen among the survivors"),
]


class Method(BaseModel):
    """A way to search. Subclasses add settings as fields and write `search`.

    Class attributes:
        name: By which it is registered; the name of the class in a file.
        summary: What it does, in one line.
        source: The paper it comes from.
        like: The method whose recommended settings and calibrations count for it, too.
        verified: When it asks the verifier.
        verifier: The verifier by default.
        fixed: Settings of decoding that it decides itself, with their values; None for a length or a
            number of steps: the largest that there can be.
        once_only: Whether it has a single trajectory, or none by chance: a budget only bounds it.
        cost: A formula for its forward passes in T steps with N particles and b children.
    """

    model_config = FROZEN

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    source: ClassVar[str] = ""
    like: ClassVar[str] = ""
    verified: ClassVar[Verified] = "every step"
    verifier: ClassVar[str] = "paper"
    fixed: ClassVar[Mapping[str, Any]] = {}
    once_only: ClassVar[bool] = False
    weighs: ClassVar[bool] = False  # its survivors carry weights, or are drawn by them
    meets_again: ClassVar[bool] = False  # one search may come back to a canvas
    cost: ClassVar[str] = "1 + T·N·b"

    selection: Ending = "majority"
    budget: int | None = setting(
        None,
        "the most forward passes: a greedy answer first where there is a verifier, then "
        "rounds of search until the verifier is satisfied or the budget is spent",
        ge=2,
        le=10**9,
    )
    stop_when: Literal["satisfied", "never"] = more(
        "satisfied",
        "with a budget: stop once the verifier is satisfied, if it says when it is, or never before",
    )

    async def search(self, run: Run) -> Particles:
        """One search; see `Run` for what it may use."""
        raise NotImplementedError(f"{type(self).__name__} has no coroutine `search`")

    def check(self, run: Run) -> None:
        """Refuse what it cannot run with, before anything is forwarded."""

    def answer(self, run: Run) -> Coroutine[Any, Any, Outcome]:
        """The whole of the method: one search, or as many as the budget allows."""
        if self.budget is None:
            return self.once(run)
        return rounds(run, self, partial(restarted, run), self.budget if self.repeats else 0)

    def once(
        self, run: Run, *, limit: int | None = None, round: int | None = None,
        places: Ints | None = None,
    ) -> Coroutine[Any, Any, Outcome]:  # fmt: skip
        """One search, from its beginning to its end; see `rounds.attempt`."""
        rows = self.size * self.children
        return attempt(run, self.search, rows=rows, limit=limit, round=round, places=places)

    @model_validator(mode="after")
    def _ending_fits(self) -> Self:
        needs = SELECTIONS[self.selection]
        if needs.needs_scores and self.verified == "never":
            raise SettingsError(
                f"selection={self.selection!r} needs scores, and method={self.name!r} never calls the "
                "verifier; choose another selection, or verified_best_of_k or s3 as method"
            )
        return self

    # --- sizes

    @property
    def size(self) -> int:
        """Particles at the start."""
        return int(getattr(self, "particles", 1))

    @property
    def children(self) -> int:
        """Children of each particle in a step that branches."""
        return 1

    @property
    def looks(self) -> int:
        """Texts that are read per child."""
        return int(getattr(self, "look_aheads", 1))

    @property
    def texts_at_once(self) -> int:
        """The most texts that a step has verified."""
        return self.size * self.children * self.looks

    @property
    def draws(self) -> int:
        """Samples of a position that one prediction must offer; more where children must differ."""
        alike = getattr(self, "child_sampling", "independent") == "independent"
        return self.size * self.children * (1 if alike else OVERSAMPLING)

    def sized(self, size: int) -> Self:
        """The same with fewer particles."""
        return self.model_copy(update={"particles": size})

    @property
    def repeats(self) -> bool:
        """Whether it goes on after its first search."""
        return self.budget is not None and not self.once_only

    @property
    def final(self) -> bool:
        """Whether what its particles have revealed stays, so that it can be streamed."""
        return not (self.repeats or self.meets_again)

    # --- cost

    def passes(self, steps: int, decoding: Decoding) -> int:
        """The most forward passes of one search, without those of the model as judge.

        Args:
            steps: Denoising steps.
            decoding: How a canvas fills.
        """
        return 1 + steps * self.size * self.children

    def texts(self, steps: int) -> int:
        """The most texts that one search has verified."""
        rows = self.size * self.children
        every = self.size + steps * rows
        count = {"never": 0, "at the end": rows, "every step": every}[self.verified]
        return count * self.looks

    def most_passes(self, steps: int, decoding: Decoding, judged: int) -> int:
        """The most forward passes of a run; `judged` is how many the verification of a text takes."""
        once = self.passes(steps, decoding) * (2 if decoding.guidance else 1)
        once += judged * self.texts(steps)
        if self.budget is None:
            return once
        return self.budget if self.repeats else min(self.budget, once)


METHODS: Registry[type[Method]] = Registry("method", "s3dlm.methods", type)
METHODS.files[".py:"] = METHODS.from_python


def register_method(method: type[Method], *, replace: bool = False) -> type[Method]:
    """Make a method known by its name, to Python, the command line, the server and evaluation alike.

    Args:
        method: A subclass of `Method`.
        replace: Whether it may take the place of another one of that name.
    """
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise SettingsError(f"register_method got {method!r}; give a subclass of s3dlm.Method")
    method.name = method.name or method.__name__
    METHODS.register(method.name, method, replace=replace)
    return method


def find_method(method: str | Method | type[Method]) -> type[Method]:
    """A method's class by name, by FILE.py:NAME, or of an instance."""
    if isinstance(method, Method):
        return type(method)
    if isinstance(method, type) and issubclass(method, Method):
        return method
    if not isinstance(method, str):
        raise SettingsError(
            f"method={method!r} is not allowed; give a name such as 's3', or S3(particles=8)"
        )
    found = METHODS.find(method)
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise SettingsError(
            f"method={method!r} is a {found!r}; it must be a subclass of s3dlm.Method"
        )
    if not found.name or ":" in method:
        found.name = method
    return found
