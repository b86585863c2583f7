"""The wheel and the source archive: built from this tree, looked into, and installed alone."""

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import germline

ROOT = Path(__file__).parent.parent.parent
GOLDEN = ROOT / "tests" / "golden" / "genome.json"
NAME = f"germline-{germline.__version__}"
FOLDERS = ("src", "tests", "docs", "deploy", "examples", "benchmarks")
FILES = {
    *("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md"),
    *("SECURITY.md", "constraints.txt", "pyproject.toml"),
}
LARGEST, ALL = 2**20, 5 * 2**20  # bytes of one file, and of an archive
# What programs leave behind, and nobody hands on.
LEFT = re.compile(r"(^|/)(__pycache__|\.hypothesis|\.cache|\.DS_Store|runs|[^/]+\.pyc)(/|$)")


def run(*command, **options):
    result = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The source archive of this tree, and the wheel that is built from that."""
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    with zipfile.ZipFile(built / f"{NAME}-py3-none-any.whl") as file:
        return {name: file.read(name) for name in file.namelist()}


@pytest.fixture(scope="module")
def source(built):
    with tarfile.open(built / f"{NAME}.tar.gz") as file:
        members = [member for member in file.getmembers() if member.isfile()]
        assert {member.name.partition("/")[0] for member in members} == {NAME}
        return {
            member.name.partition("/")[2]: file.extractfile(member).read() for member in members
        }


def tree(*folders):
    """The files of this checkout that are its own."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *folders]
    names = [name for name in run(*command, cwd=ROOT).split("\0") if name]
    return {name: (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()}


@pytest.mark.release
def test_the_source_archive_is_the_tree(source):
    """All that it takes to run the tests and to build the wheel, and nothing else."""
    own = {name: data for name, data in source.items() if name.partition("/")[0] in FOLDERS}
    assert own == tree(*FOLDERS)
    assert source.keys() - own.keys() >= FILES
    assert all(source[name] == (ROOT / name).read_bytes() for name in FILES)


@pytest.mark.release
def test_the_wheel_that_is_built_of_it_is_the_package(wheel):
    package = {name: data for name, data in wheel.items() if name.startswith("germline/")}
    expected = {name.removeprefix("src/"): data for name, data in tree("src").items()}
    assert package == expected | {
        "germline/constraints.txt": (ROOT / "constraints.txt").read_bytes()
    }
    about = wheel.keys() - package.keys()
    assert {name.partition("/")[0] for name in about} == {f"{NAME}.dist-info"}
    assert wheel[f"{NAME}.dist-info/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()


@pytest.mark.release
def test_neither_has_anything_of_the_machine_it_was_built_on(built, wheel, source):
    for archive in (wheel, source):
        assert [name for name in archive if LEFT.search(name)] == []
        assert [name for name, data in archive.items() if len(data) > LARGEST] == []
        places = [str(place).encode() for place in (ROOT, built)]
        for name, data in archive.items():
            assert not any(place in data for place in places), name
    assert all(path.stat().st_size < ALL for path in built.iterdir())


@pytest.mark.release
def test_an_index_would_take_them(built):
    run(sys.executable, "-m", "twine", "check", "--strict", *built.iterdir())


@pytest.mark.release
def test_the_wheel_works_in_a_clean_environment(built, tmp_path):
    wheel = built / f"{NAME}-py3-none-any.whl"
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
