"""Every preset with a target, from its default seed: whether it is reached, and how soon.

python benchmarks/presets.py [NAME ...] [--seeds 1 2 3]

The time is that of the whole command, start and compilation included. The last column is the
champion's mean over 100 fresh episodes, which nobody was selected by.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from germline import presets

COMMAND = [sys.executable, "-m", "germline"]


def measured(name: str, seed: int | None, folder: Path) -> str:
    """A row of the table."""
    seeded = [] if seed is None else ["--set", f"seed={seed}"]
    started = time.perf_counter()
    subprocess.run([*COMMAND, "train", name, "--out", folder, "--quiet", *seeded], check=True)
    seconds = time.perf_counter() - started
    done = subprocess.run([*COMMAND, "eval", folder, "--json"], check=True, capture_output=True)
    fresh = json.loads(done.stdout)
    done = subprocess.run([*COMMAND, "show", folder, "--json"], check=True, capture_output=True)
    facts = json.loads(done.stdout)
    mean = f"{fresh['mean']:,.1f} ± {fresh['standard_error']:.1f}"
    return (
        f"| {name} | {facts['seed']} | {facts['finished_by']} | {facts['generations']:,} "
        f"| {facts['frames']:,} | {seconds:,.0f} | {mean} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    # Those of the paper take a billion frames each; name them to run them.
    short = [name for name in presets.names() if presets.read(name).stop.score is not None]
    parser.add_argument("names", nargs="*", default=short)
    parser.add_argument("--seeds", type=int, nargs="*", default=[None])
    options = parser.parse_args()
    print("| preset | seed | finished by | generations | frames | seconds | 100 fresh episodes |")
    print("|---|---|---|---|---|---|---|")
    for name in options.names:
        for seed in options.seeds:
            with tempfile.TemporaryDirectory() as folder:
                print(measured(name, seed, Path(folder) / "run"), flush=True)


if __name__ == "__main__":
    main()
