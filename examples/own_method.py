"""Your own method, with a loop of its own: beam search over canvases, whose best text a verifier chooses.

This file is all that it takes: s3dlm generate "Target: 15 Numbers: 10, 1, 6" --method examples/own_method.py:Beam
"""

import s3dlm
from s3dlm.search.options import more
from s3dlm.search.particles import Particles
from s3dlm.search.run import Run


class Beam(s3dlm.Method):
    name = "beam"
    summary = (
        "keeps the likeliest canvases of every step, and the verifier chooses among their texts"
    )
    particles: int = more(4, "canvases kept after every step", ge=1)
    branching: int = more(2, "children of each", ge=1)
    selection: str = more("verified", "how the answer is chosen among the survivors")

    async def search(self, run: Run) -> Particles:
        beam = await run.begin(self.particles)
        while beam.open:
            children = run.expand(beam, self.branching, "distinct")
            ahead = await run.predict(children)
            looked = await run.verify(ahead, wanted=children.last)
            likely = children.canvas.logp.sum(axis=1)
            beam = run.resample(children, looked, likely, self.particles, "top")
        return beam

    @property
    def children(self) -> int:
        return self.branching


if __name__ == "__main__":
    result = s3dlm.generate("tiny", "Target: 15 Numbers: 10, 1, 6", method=Beam)
    print(result)
    print("answer:", result.answer)
