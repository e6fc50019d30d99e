"""Peak resident memory above the loaded model, measured in a process that does one thing.

Linux keeps the peak of a process's own memory in /proc and lets it be reset after loading. The
usual `ru_maxrss` will not do: a child inherits its parent's, and loading has a peak of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

PROCESS = Path("/proc/self")


def peak_bytes(what: str) -> float:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", what],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.strip().splitlines()[-1])


def status(name: str) -> int:
    """A line of /proc/self/status, in bytes."""
    lines = (PROCESS / "status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def main(what: str) -> None:
    import s3dlm
    from benchmarks.models import wide
    from benchmarks.peers import Loop
    from s3dlm.settings import Settings

    settings = Settings("s3", gen_length=64, steps=4, block_length=64, temperature=0.7)
    model = wide()
    (PROCESS / "clear_refs").write_text("5")  # the peak starts anew
    loaded = status("VmRSS")
    if what == "s3":
        s3dlm.generate(model, "question", settings=settings)
    else:
        Loop(model, "question", settings).decode(rows=8)
    print(status("VmHWM") - loaded)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["s3", "llada"])
    main(parser.parse_args().what)
