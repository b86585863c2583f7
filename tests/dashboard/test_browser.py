"""The page in a real browser: every view, a run that goes on, films, files, tokens, and no harm."""

import os
import subprocess
import sys

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

import servers
from dashboards import dashboard
from engines import until
from germline import files
from germline.run import recall
from germline.run.store import Store
from runs import CARTPOLE, FROSTBITE, begin, run, small

pytestmark = pytest.mark.system

EVIL = "<img src=x onerror=alert(1)>"
SCRIPT = "</script>"  # a folder in a folder
PHONE = {"width": 390, "height": 844}
TABLET = {"width": 800, "height": 1000}
DESK = {"width": 1280, "height": 900}
PATIENCE = 60_000  # ms, on a machine that is busy with other tests
# What a canvas shows, as one number.
SHOWN = """canvas => {
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let sum = 0;
  for (let i = 0; i < pixels.length; i += 1) sum = (sum * 31 + pixels[i]) % 1000003;
  return sum;
}"""

FRAMES = """new Promise(done => {
  let left = 90;
  (function next() { left-- ? requestAnimationFrame(next) : done(); })();
})"""


@pytest.fixture(scope="module")
def chromium():
    program = servers.program("chromium")
    with sync_playwright() as playwright:
        # Root, which tests in containers often are, has no sandbox; the pages are our own.
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "runs"
    spec = CARTPOLE | {"stop.generations": 6, "seed": 9}
    many = {"algorithm.population": 10}  # so that the champions have ancestors
    run(folder / "cartpole", small(spec | many))
    run(folder / "es", small(spec, "es"))
    run(folder / EVIL, small(spec | many | {"seed": 8}))
    run(folder / SCRIPT, small(spec | many | {"seed": 7}))
    with (folder / SCRIPT / "spec.toml").open("a") as stream:
        stream.write(f"# {SCRIPT}{EVIL}\n")
    run(folder / "frostbite", small(FROSTBITE | {"stop.generations": 1}))
    return folder


@pytest.fixture(scope="module")
def served(made):
    with dashboard(made) as (_, url):
        yield url


class Watched:
    """A page, and what went wrong on it."""

    def __init__(self, chromium, url, viewport, **options):
        self.context = chromium.new_context(viewport=viewport, accept_downloads=True, **options)
        self.context.set_default_timeout(PATIENCE)
        self.page = self.context.new_page()
        self.wrong = []
        self.url = url
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: self.wrong.append(f"dialog {dialog.message}"))
        self.page.on("request", self._asked)

    def _said(self, message):
        expected = ("401", "ERR_CONNECTION_REFUSED")
        if message.type == "error" and not any(text in message.text for text in expected):
            self.wrong.append(message.text)

    def _asked(self, request):
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.wrong.append(f"asked for {request.url}")


@pytest.fixture
def open_page(chromium):
    """Open a page; at the end of the test nothing may have gone wrong on any."""
    pages = []

    def opened(url, view="", viewport=DESK, **options):
        watched = Watched(chromium, url, viewport, **options)
        pages.append(watched)
        watched.page.goto(f"{url}/{view}" if url.startswith("http") else url)
        return watched.page

    expect.set_options(timeout=PATIENCE)
    yield opened
    wrong = [text for watched in pages for text in watched.wrong]
    for watched in pages:
        watched.context.close()
    assert wrong == []


def key_of(page, url, name):
    rows = page.request.get(f"{url}/api/runs").json()["runs"]
    return next(row["key"] for row in rows if row["name"] == name)


def champion_of(folder):
    with Store.open(folder) as store:
        return store.reports()[-1].champion


def at(page, url, name, view=""):
    """Open a view of a run."""
    page.goto(f"{url}/#/run/{key_of(page, url, name)}{view}")


def test_runs_are_listed_and_compared(served, open_page):
    page = open_page(served)
    expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
    for name in ("cartpole", "es", EVIL, SCRIPT, "frostbite"):
        expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()
    for name in ("cartpole", EVIL):
        page.get_by_label(f"Compare {name}").check()
    chart = page.locator(".js-plotly-plot")
    expect(chart.locator(".legendtext")).to_have_text(["cartpole", EVIL])
    page.get_by_label("Against").select_option("seconds")
    expect(chart.locator(".xtitle")).to_contain_text("time")
    page.get_by_label("Filter").fill("es")
    expect(page.get_by_role("link", name="cartpole")).to_have_count(0)


def test_a_run_is_seen_to_go_on(open_page, tmp_path):
    folder = tmp_path / "runs"
    begin(folder / "live", small(CARTPOLE | {"stop.generations": 2}))
    with dashboard(folder) as (_, url):
        page = open_page(url)
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name="live"))
        expect(row.locator(".c-generations")).to_have_text("0")
        at(page, url, "live")
        expect(page.get_by_role("heading", level=1)).to_have_text("live")
        page.evaluate("window.same = true")
        for generations in (2, 4):
            trained = [sys.executable, "-m", "germline", "resume", str(folder / "live"), "-q"]
            trained += ["--set", f"stop.generations={generations}"]
            subprocess.run(trained, check=True, env=os.environ, timeout=300)
            fact = page.locator("dt", has_text="Generations").locator("+ dd")
            expect(fact).to_have_text(str(generations))
            # Not `wait_for_function`: what it does in the page is against the page's policy.
            elite = "document.querySelector('.js-plotly-plot')?.data.find(t => t.name === 'elite')"
            wanted = f"{elite}?.x.length === {generations}"
            until(lambda wanted=wanted: page.evaluate(wanted), "the chart has them")
        assert page.evaluate("window.same") is True  # and was not loaded anew


def test_it_goes_on_when_the_dashboard_is_back(made, open_page):
    with dashboard(made) as (_, url):
        page = open_page(url)
        at(page, url, "cartpole")
        expect(page.locator(".js-plotly-plot").first).to_be_visible()
        key = key_of(page, url, "cartpole")
    expect(page.get_by_role("alert")).to_contain_text("The dashboard does not answer")
    page.evaluate(f"location.hash = '#/run/{key}/individual/{champion_of(made / 'cartpole')}'")
    expect(page.get_by_role("heading", level=1)).to_have_text("Not shown")
    with dashboard(made, "--port", url.rpartition(":")[2]):
        page.go_back()
        expect(page.get_by_role("heading", level=1)).to_have_text("cartpole")
        expect(page.get_by_role("alert")).to_have_count(0)


def test_a_slider_leads_through_the_generations(served, made, open_page):
    page = open_page(served)
    at(page, served, "cartpole", "/population/4")
    counts = page.get_by_text("Generation 4: 10 points")
    expect(counts).to_be_visible()
    slider = page.get_by_role("slider", name="Generation")
    slider.focus()
    slider.press("ArrowLeft")
    slider.press("ArrowLeft")
    expect(page.get_by_text("Generation 2: 10 points")).to_be_visible()
    page.get_by_label("Across").select_option("number")
    with Store.open(made / "cartpole") as store:
        best = max(
            (s for s in store.scores(2) if s.phase == 0),
            key=lambda s: sum(s.returns) / len(s.returns),
        )
    page.get_by_role("link", name=best.id[:8]).first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(best.id[:8])


def test_an_ancestor_is_a_click_away(served, made, open_page):
    page = open_page(served)
    champion = champion_of(made / "cartpole")
    with Store.open(made / "cartpole") as store:
        line = [born.id for born in store.ancestry(champion)]
    at(page, served, "cartpole", "/lineage")
    table = page.get_by_role("region", name="Ancestors")
    expect(table.get_by_role("link")).to_have_count(len(line))
    # In the chart: the last marker of the line, which is drawn above all others.
    place = page.locator(".scatterlayer .trace").last.locator("path.point").last.bounding_box()
    page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    page.mouse.down()
    page.mouse.up()
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"Individual {champion[:8]}")
    page.go_back()
    table.get_by_role("link").nth(1).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(line[1][:8])


@pytest.mark.parametrize("name", ["cartpole", "es", "frostbite"])
def test_play_makes_a_film_that_moves(served, made, open_page, name):
    page = open_page(served)
    at(page, served, name, f"/individual/{champion_of(made / name)}")
    page.get_by_role("button", name="Play").click()
    canvas = page.locator("canvas")
    expect(page.locator(".counts")).to_contain_text("step ")
    seen = set()
    for _ in range(3):
        seen.add(until(lambda: {canvas.evaluate(SHOWN)} - seen, "the film moves").pop())
    expect(page.get_by_text("steps in all, score")).to_be_visible()


def test_a_child_plays_beside_its_parent(served, made, open_page):
    page = open_page(served)
    at(page, served, "cartpole", f"/individual/{champion_of(made / 'cartpole')}")
    page.get_by_label("Beside its parent").check()
    page.get_by_role("button", name="Play").click()
    expect(page.locator("canvas")).to_have_count(2)
    expect(page.get_by_text("steps in all, score")).to_have_count(2)
    first, second = (page.locator("canvas").nth(i).evaluate(SHOWN) for i in (0, 1))
    assert first != second


def test_weights_have_a_digest_and_a_genome_can_be_taken_away(served, made, open_page, tmp_path):
    page = open_page(served)
    champion = champion_of(made / "cartpole")
    at(page, served, "cartpole", f"/individual/{champion}")
    page.get_by_role("button", name="Compute").click()
    digest = page.request.get(
        f"{served}/api/runs/{key_of(page, served, 'cartpole')}/individuals/{champion}/weights"
    ).json()["digest"]
    expect(page.get_by_text(digest)).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    files.write(tmp_path / "own.json", recall.recall(made / "cartpole", champion))
    assert download.value.path().read_bytes() == (tmp_path / "own.json").read_bytes()
    assert download.value.suggested_filename == f"{champion}.json"


def drop(page, name, data):
    """Let a file fall on the page."""
    transfer = page.evaluate_handle(
        """([name, text]) => {
          const made = new DataTransfer();
          made.items.add(new File([text], name));
          return made;
        }""",
        [name, data],
    )
    page.dispatch_event("body", "dragover", {"dataTransfer": transfer})
    page.dispatch_event("body", "drop", {"dataTransfer": transfer})


def test_a_genome_file_that_is_dropped_is_played(served, made, open_page, tmp_path):
    page = open_page(served)
    expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
    champion = champion_of(made / "cartpole")
    files.write(tmp_path / "own.json", recall.recall(made / "cartpole", champion))
    drop(page, "own.json", (tmp_path / "own.json").read_text())
    expect(page.get_by_text(champion).first).to_be_visible()
    expect(page.get_by_text("steps in all, score")).to_be_visible()
    drop(page, EVIL, "{}")
    expect(page.get_by_role("alert")).to_contain_text("missing required field germline")
    expect(page.get_by_role("heading", level=1)).to_contain_text(EVIL)
    # By keyboard there is a button for the same.
    page.locator("#file").set_input_files(tmp_path / "own.json")
    expect(page.get_by_text("steps in all, score")).to_be_visible()


def test_a_token_is_refused_and_accepted(made, open_page):
    with dashboard(made, environment={"GERMLINE_TOKEN": "open sesame"}) as (_, url):
        page = open_page(url)
        expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
        page.get_by_label("Token").fill("guess")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("not the token")
        page.get_by_label("Token").fill("open sesame")
        page.keyboard.press("Enter")
        expect(page.get_by_role("link", name="cartpole", exact=True)).to_be_visible()
        page.reload()
        expect(page.get_by_role("link", name="cartpole", exact=True)).to_be_visible()


def test_the_gallery_has_cards_that_move_by_task(served, open_page):
    page = open_page(served, "#/gallery")
    cards = page.locator("canvas")
    expect(cards.first).to_be_visible()
    page.get_by_label("Environment").select_option("frostbite")
    expect(page.get_by_text("CartPole-v1").locator("visible=true")).to_have_count(0)
    expect(cards).to_have_count(1)
    first = cards.first.evaluate(SHOWN)
    until(lambda: cards.first.evaluate(SHOWN) != first, "the film moves")


def test_who_wants_no_motion_gets_none_unasked(served, open_page):
    page = open_page(served, "#/gallery", reduced_motion="reduce")
    page.get_by_label("Environment").select_option("frostbite")
    canvas = page.locator("canvas")
    expect(canvas).to_have_count(1)
    first = until(lambda: canvas.evaluate(SHOWN), "there is a picture")
    page.evaluate(FRAMES)
    assert canvas.evaluate(SHOWN) == first


def views(page, url, made):
    """Every view by name."""
    key, champion = key_of(page, url, "cartpole"), champion_of(made / "cartpole")
    return {
        "runs": "#/",
        "run": f"#/run/{key}",
        "population": f"#/run/{key}/population/3",
        "lineage": f"#/run/{key}/lineage/{champion}",
        "individual": f"#/run/{key}/individual/{champion}",
        "gallery": "#/gallery",
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESK, TABLET, PHONE], ids=["desk", "tablet", "phone"])
def test_everybody_can_use_it(served, made, open_page, viewport, scheme):
    page = open_page(served, viewport=viewport, color_scheme=scheme)
    for name, view in views(page, served, made).items():
        page.goto(f"{served}/{view}")
        expect(page.get_by_role("heading", level=1)).to_be_focused()
        page.wait_for_load_state("networkidle") if name != "runs" else None
        found = Axe().run(page).response["violations"]
        serious = [v for v in found if v["impact"] in ("serious", "critical")]
        assert serious == [], f"{name}: {serious}"
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{name} scrolls sideways by {wide} pixels"


def test_everything_is_reached_by_keyboard(served, open_page):
    page = open_page(served)
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent"))
        if reached[-1] == "cartpole":
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("cartpole")


def test_an_exported_page_opens_from_disk(made, open_page, tmp_path):
    for name in ("cartpole", EVIL, SCRIPT):
        out = tmp_path / "page.html"
        command = [sys.executable, "-m", "germline", "export", "--html", made / name]
        # A comment of the spec is its owner's, and there only if everything is asked for.
        asked = ["--include", "hosts,paths,errors,costs"] * (name == SCRIPT)
        subprocess.run([*command, "--out", out, "--force", *asked], check=True, timeout=300)
        assert b"<img src=x" not in out.read_bytes()
        page = open_page(out.as_uri())
        expect(page.get_by_role("heading", level=1)).to_have_text((made / name).name)
        expect(page.locator(".js-plotly-plot").first).to_be_visible()
        if name == SCRIPT:
            page.get_by_text("Spec", exact=True).click()
            expect(page.get_by_text(f"# {SCRIPT}{EVIL}")).to_be_visible()
        page.get_by_role("link", name="Lineage").click()
        champion = champion_of(made / name)
        page.get_by_role("region", name="Ancestors").get_by_role("link", name=champion[:8]).click()
        page.get_by_role("button", name="Play").click()
        expect(page.get_by_text("steps in all, score")).to_be_visible()
        canvas = page.locator("canvas").first
        first = canvas.evaluate(SHOWN)
        until(lambda c=canvas, f=first: c.evaluate(SHOWN) != f, "the film moves")
