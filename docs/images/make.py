"""Makes the picture of the live display in the README, from a real run in a real terminal.

python docs/images/make.py (needs tmux)
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

PRESET, GENERATIONS = "lunar-lander", 18
OUT = Path(__file__).parent / "train.svg"


def captured(folder: Path) -> str:
    """The screen of a run once it has played some generations."""
    tmux = ["tmux", "-f", os.devnull, "-S", str(folder / "socket")]
    command = f"{sys.executable} -m germline train {PRESET}"
    subprocess.run(
        [*tmux, "-u", "new-session", "-d", "-x", "80", "-y", "12", command], cwd=folder, check=True
    )
    try:
        while True:
            screen = subprocess.run(
                [*tmux, "capture-pane", "-e", "-p"], capture_output=True, check=True, text=True
            ).stdout
            found = re.search(r"(\d+) of [\d,]+", screen)
            if found and int(found[1]) >= GENERATIONS and re.search(r" [1-9]\d*/\d", screen):
                return screen.rstrip()
            time.sleep(0.05)
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


def main() -> None:
    """Draw the screen as it was, colours included."""
    with tempfile.TemporaryDirectory() as folder:
        screen = captured(Path(folder))
    with Path(os.devnull).open("w") as nowhere:
        console = Console(width=80, record=True, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi(f"$ germline train {PRESET}\n{screen}"))
    svg = console.export_svg(title="germline")
    # The fonts of the reader are good enough, and nothing is fetched from elsewhere.
    svg = re.sub(r"@font-face \{.*?\}|<!--.*?-->", "", svg, flags=re.DOTALL)
    OUT.write_text(svg)


if __name__ == "__main__":
    main()
