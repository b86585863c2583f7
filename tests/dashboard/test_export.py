"""A run as one file: all the page asks for is inside, and nothing of it is taken for a script."""

import base64
import hashlib
import json
import re
from collections import Counter
from html.parser import HTMLParser

import pytest

from commands import ok, refused
from germline.dashboard import export
from germline.dashboard.assets import page
from germline.run.store import Store
from runs import CARTPOLE, begin, run, small

EVIL = "<img src=x onerror=alert(1)>"
DECLARED = re.compile(
    r"^(?:export )?(?:async )?(?:function|const|let|class) (?:\[([^\]]*)\]|(\w+))", re.MULTILINE
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    run(folder / EVIL, small(CARTPOLE | {"stop.generations": 3, "seed": 8}))
    run(folder / "code", small())
    begin(folder / "begun", small())
    return folder


class Parts(HTMLParser):
    """The elements of a page, and the text in them by their tag, or by the type they name."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.within = ""
        self.texts = {}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.within = dict(attributes).get("type") or tag

    def handle_endtag(self, tag):
        self.within = ""

    def handle_data(self, data):
        self.texts[self.within] = self.texts.get(self.within, "") + data


def test_a_run_becomes_a_page_with_all_it_asks_for(made, germline, tmp_path):
    out = tmp_path / "page.html"
    said = ok(germline("export", "--html", made / EVIL, "--out", out))
    assert said == f"{out}: {out.stat().st_size:,} bytes\n"
    parts = Parts(out.read_text())
    assert "img" not in {tag for tag, _ in parts.elements}
    assert parts.texts["title"] == f"{EVIL} · Germline"
    answers = json.loads(parts.texts["application/json"])
    with Store.open(made / EVIL) as store:
        champion = store.reports()[-1].champion
    key = next(path for path in answers if path.count("/") == 3)
    assert answers[key]["name"] == EVIL
    assert len(answers[f"{key}/curves?points=2000"]["columns"]["elite"]) == 3
    assert answers[f"{key}/lineage/{champion}"]["ancestors"][-1]["id"] == champion
    assert answers[f"{key}/individuals/{champion}"]["read"] == 1
    film = base64.b64decode(answers[f"{key}/individuals/{champion}/film?seed=0&pictures=20000"])
    assert b'"kind":"about"' in film
    assert film.count(b'"kind":"shot"') > 5
    assert answers[f"{key}/individuals/{champion}/weights"]["digest"].encode() in film


def test_nothing_is_loaded_and_only_its_own_scripts_run(made, tmp_path, germline):
    out = tmp_path / "page.html"
    ok(germline("export", "html", made / EVIL, "--out", out, "--no-film"))
    parts = Parts(out.read_text())
    (policy,) = (a["content"] for _, a in parts.elements if "http-equiv" in a)
    for text in (parts.texts["script"], parts.texts["module"], parts.texts["style"]):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for _, attributes in parts.elements:
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    assert "film?" not in parts.texts["application/json"]


def test_without_leave_to_run_code_there_is_no_film(made, germline, tmp_path):
    out = tmp_path / "page.html"
    code, _, err = germline("export", "html", made / "code", "--out", out)
    assert code == 0
    assert err.startswith("germline: without a film: ")
    assert "games" in err
    assert out.stat().st_size > 10**6


def test_mistakes_write_nothing(made, germline, tmp_path):
    out = tmp_path / "page.html"
    assert "has nothing to show yet" in refused(
        germline("export", "html", made / "begun", "--out", out)
    )
    assert "is not a run" in refused(germline("export", "--html", made, "--out", out))
    assert list(tmp_path.iterdir()) == []
    out.write_text("mine")
    assert "is there already" in refused(germline("export", made / EVIL, "--html", "--out", out))
    assert out.read_text() == "mine"


def test_the_modules_of_the_page_can_be_put_together():
    files = {name: data.decode() for name, (data, _) in page().items() if name != "plotly.js"}
    scripts = [name for name in files if name.endswith(".js")]
    names = Counter(
        name
        for script in scripts
        for several, one in DECLARED.findall(files[script])
        for name in ([one] if one else re.findall(r"\w+", several))
    )
    assert [name for name, count in names.items() if count > 1] == []
    bundle = export.bundle(files)
    assert not re.search(r"^(import|export) ", bundle, re.MULTILINE)
    for script in scripts:
        assert bundle.count(files[script].splitlines()[0]) == 1, f"{script} is not there once"


def test_what_looks_like_markup_in_a_script_is_written_otherwise():
    assert export._harmless('a = "</script><!--"') == 'a = "<\\/script><\\!--"'
