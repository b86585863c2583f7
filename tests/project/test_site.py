"""The site builds without a warning, knows every page, and loads nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_there(site):
    for page in (ROOT / "docs").rglob("*.md"):
        name = "index" if page.stem == "README" else page.stem
        assert (site / page.relative_to(ROOT / "docs")).with_name(f"{name}.html").exists()


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site):
    for page in site.rglob("*.html"):
        text = page.read_text()
        loaded = re.findall(r"<(?:script|img|link|iframe)\b[^>]*(?:src|href)=\"([^\"]*)\"", text)
        assert not [link for link in loaded if re.match(r"(https?:)?//", link)], page


@pytest.mark.slow
def test_the_reference_has_every_public_name(site):
    import germline

    page = (site / "api.html").read_text()
    rooms = [germline, germline.policies, germline.tasks, germline.algorithms]
    wanted = {f"{room.__name__}.{name}" for room in rooms for name in room.__all__}
    found = set(re.findall(r'id="(germline\.[\w.]+)"', page))
    assert wanted <= found


def imported():
    """What examples and pages import of Germline: (where, module, name)."""
    scripts = {path.name: path.read_text() for path in (ROOT / "examples").glob("*.py")}
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        blocks = re.findall(r"^```python[^\n]*\n(.*?)^```", page.read_text(), re.M | re.S)
        scripts[page.name] = "\n".join(blocks)
    for where, text in scripts.items():
        for module, names in re.findall(r"^from (germline[\w.]*) import ([\w, ]+)", text, re.M):
            for name in names.split(", "):
                yield where, module, name


def test_what_examples_import_is_on_the_page_about_python():
    page = (ROOT / "docs" / "api.md").read_text()
    lists = re.findall(r"^::: ([\w.]+)\n.*members: \[(.*)\]", page, re.M)
    promised = {(module, name) for module, names in lists for name in names.split(", ")}
    promised |= {tuple(path.rsplit(".", 1)) for path in re.findall(r"^::: ([\w.]+)$", page, re.M)}
    cases = list(imported())
    assert len({where for where, *_ in cases}) > 10
    assert [case for case in cases if case[1:] not in promised] == []
