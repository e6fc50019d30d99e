"""Peak resident memory above the loaded model, measured in a process that does one thing."""

from __future__ import annotations

import resource
import subprocess
import sys


def peak_bytes(what: str) -> float:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", what],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.strip().splitlines()[-1])


def main(what: str) -> None:
    import s3dlm
    from benchmarks.models import wide
    from benchmarks.peers import Loop
    from s3dlm.settings import Settings

    settings = Settings(gen_length=64, steps=4, block_length=64, temperature=0.7)
    model = wide()
    loaded = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if what == "s3":
        s3dlm.generate(model, "question", settings=settings)
    else:
        Loop(model, "question", settings).decode(rows=8)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - loaded) * 1024)


if __name__ == "__main__":
    main(sys.argv[1])
