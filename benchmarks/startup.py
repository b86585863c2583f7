"""Seconds until light commands answer, beside an interpreter that does nothing.

python benchmarks/startup.py
"""

import statistics
import subprocess
import sys
import time


def seconds(command: list[str]) -> float:
    """The median of nine runs, after one to warm the disk cache."""
    times = []
    for _ in range(10):
        start = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def main() -> None:
    """Print the figures; the goal for --help is 0.3 s."""
    bare = seconds([sys.executable, "-c", "pass"])
    print(f"  {'python -c pass':<24}{bare:6.3f} s")
    for arguments in (["--help"], ["genome", "--help"], ["genome", "new", "mlp"]):
        took = seconds([sys.executable, "-m", "germline", *arguments])
        print(f"  {'germline ' + ' '.join(arguments):<24}{took:6.3f} s   {took / bare:5.1f}x")


if __name__ == "__main__":
    main()
