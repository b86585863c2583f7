"""The wheel, built from this tree and installed where nothing else is."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
GOLDEN = ROOT / "tests" / "golden" / "genome.json"


def run(*command, **options):
    result = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.slow
def test_the_wheel_works_in_a_clean_environment(tmp_path):
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("germline-*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    run(python, "-m", "pip", "install", "--quiet", "--constraint", constraints, wheel)
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"HOME": str(tmp_path)}
    command = tmp_path / "env" / "bin" / "germline"
    for engine in ("jax", "numpy"):
        digest = run(command, "genome", "hash", GOLDEN, "--engine", engine, env=clean, cwd=tmp_path)
        assert digest.strip() == "bcbacec3b913fdc9e078872b470f50f7575c257eda72316cb94a9019b2c1ca5a"
    listed = run(python, "-c", "import germline; print(germline.__file__)", cwd=tmp_path)
    assert str(tmp_path) in listed
    package = Path(listed.strip()).parent
    assert (package / "py.typed").exists()
    page = {path.name for path in (ROOT / "src" / "germline" / "dashboard" / "page").iterdir()}
    assert page == {path.name for path in (package / "dashboard" / "page").iterdir()}
    # What an extra would add is named.
    asked = subprocess.run([command, "dashboard", "."], capture_output=True, text=True, check=False)
    assert asked.returncode == 2
    assert "pip install 'germline[dashboard]'" in asked.stderr
