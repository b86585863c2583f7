"""A window on a real X server."""

import os
import subprocess
import sys

import pytest

import servers
from germline import files, policies
from germline.files import GenomeFile, TaskRef
from germline.genome import Birth, Genome


@pytest.mark.system
def test_an_episode_is_played_in_a_window(tmp_path):
    servers.program("Xvfb")
    spec = policies.make("mlp", {"inputs": 4, "hidden": [4], "outputs": 2})
    genome = Genome(policies.reference("mlp", spec), Birth(1))
    file = GenomeFile(genome, TaskRef("gym", {"id": "CartPole-v1"}))
    files.write(tmp_path / "genome.json", file)
    command = ["-m", "germline", "play", "genome.json", "--how", "window", "--speed", "1000"]
    clean = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "SDL_VIDEODRIVER")}
    done = subprocess.run(
        [servers.program("xvfb-run"), "-a", sys.executable, *command, "--cap", "5"],
        cwd=tmp_path,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "episode 0: score 5 in 5 steps\n"
