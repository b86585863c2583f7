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
