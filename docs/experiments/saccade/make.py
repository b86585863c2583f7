"""How well a moving window finds and names figures: the sweep, fresh episodes, figure and film.

python docs/experiments/saccade/make.py [FOLDER]

FOLDER is that of the sweep, sweeps/saccade if not given. Runs that are there are not done again.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np

from germline import sweep
from germline.api import Run
from germline.blobs import BlobCache
from germline.evaluate import Evaluator
from germline.messages import Evaluation, Key, Request
from germline.run import score, spec
from germline.sweep.figure import Line, Mark, Panel, draw

HERE = Path(__file__).parent
EPISODES = 2000


def fresh(run: Run) -> tuple[float, float]:
    """How often the champion frames the figure at the end, and how often it is right."""
    file, blobs = run.champion, BlobCache()
    blobs.put(file.weights)
    evaluator = Evaluator(spec.resolve(run.spec).problem, blobs)
    request = Request(Key("", 0, 0, 0), file.genome, score.seeds(0, EPISODES))
    (result,) = evaluator.evaluate([request])
    assert isinstance(result, Evaluation)
    found, right = result.behaviour
    return found, right


def main(folder: Path) -> None:
    """Print the table, draw the figure and film the champion of the first seed."""
    done = sweep.run(HERE / "sweep.toml", out=folder, jobs=2)
    (runs,) = done.runs.values()
    curves = np.array([[report.elite for report in run.reports] for run in runs])
    print("| seed | first generation at 90 % | figure framed at the end | accuracy |")
    print("|---|---|---|---|")
    for run, curve in zip(runs, curves, strict=True):
        first = int(np.argmax(curve >= 0.9)) if curve.max() >= 0.9 else "never"
        found, right = fresh(run)
        print(f"| {run.spec.seed} | {first} | {100 * found:.1f} % | {100 * right:.1f} % |")
    band = (curves.min(0), curves.max(0))
    line = Line("ES, gru of 32 units", range(curves.shape[1]), np.median(curves, 0), band)
    panel = Panel("saccade, four figures", [line], [Mark("chance", 0.25)])
    up = f"accuracy: median over {len(runs)} seeds, band from the least to the most"
    text = draw("A window that looks for a figure", [panel], across="generation", up=up)
    (HERE / "figure.svg").write_text(text)
    film = ["play", str(runs[0].folder), "--out", str(HERE / "film.gif"), "--episodes", "6"]
    subprocess.run([sys.executable, "-m", "germline", *film, "--force"], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "sweeps/saccade"))
