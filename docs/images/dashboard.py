"""Makes the pictures of the dashboard, from real runs in a real browser.

    python docs/images/dashboard.py FOLDER (needs Chromium)

The runs are made in FOLDER, which takes some minutes, unless they are there from an earlier call.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

OUT = Path(__file__).parent
TRAIN = [sys.executable, "-m", "germline", "train", "-q"]
PRICE = ["--set", "backend.price=0.1"]
RUNS = {
    "cartpole/seed-1": ["cartpole", "--set", "seed=1"],
    "cartpole/seed-2": ["cartpole", "--set", "seed=2"],
    "cartpole/es": ["cartpole-es"],
    "frostbite": ["frostbite-laptop", "--set", "stop.generations=6", *PRICE],
    "lander": ["lunar-lander", *PRICE],
    "maze/novelty": ["maze"],
    "maze/reward": ["docs/experiments/maze/spec.toml", "--set", "stop.generations=40"],
    "pendulum": ["pendulum"],
}
DESK: ViewportSize = {"width": 1280, "height": 1040}
LOW: ViewportSize = {"width": 1280, "height": 400}
PHONE: ViewportSize = {"width": 390, "height": 844}


def take(
    browser: Browser,
    name: str,
    address: str,
    prepare: Callable[[Page], None] = lambda page: None,
    size: ViewportSize = DESK,
    scheme: Literal["light", "dark"] = "light",
) -> None:
    """Open a view, prepare it, and keep what is seen then."""
    context = browser.new_context(viewport=size, color_scheme=scheme)
    page = context.new_page()
    page.goto(address)
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    prepare(page)
    for _ in range(20):  # frames, in which charts settle
        page.evaluate("new Promise(requestAnimationFrame)")
    page.screenshot(path=OUT / f"dashboard-{name}.png")
    context.close()


def compared(page: Page) -> None:
    """Three runs, one beside the other."""
    for name in ("cartpole/seed-1", "cartpole/seed-2", "cartpole/es"):
        page.get_by_label(f"Compare {name}").check()
    page.get_by_label("Against").select_option("frames")
    expect(page.locator(".legendtext")).to_have_count(3)


def bands(page: Page) -> None:
    """All of a run's curves."""
    expect(page.get_by_text("25–75 %")).to_be_visible()


def below(page: Page) -> None:
    """The curves, where they are not on the first screen."""
    bands(page)
    page.get_by_role("heading", name="Score").scroll_into_view_if_needed()
    page.evaluate("scrollBy(0, 700)")


def places(page: Page) -> None:
    """Where everybody ended in the maze."""
    page.get_by_label("Across").select_option("behaviour.0")
    page.get_by_label("Up").select_option("behaviour.1")
    expect(page.locator(".ytitle").first).to_have_text("behaviour.1")


def ancestors(page: Page) -> None:
    """A lineage that was read to its end."""
    expect(page.get_by_text("others had children")).to_be_visible()


def played(page: Page) -> None:
    """An individual in the middle of its play, beside its parent."""
    page.get_by_label("Beside its parent").check()
    page.get_by_role("button", name="Play").click()
    middle(page, 2)


def middle(page: Page, films: int = 1) -> None:
    """Films that are complete, in their middle."""
    expect(page.get_by_text("steps in all, score")).to_have_count(films)
    page.get_by_role("button", name="Pause").click()
    scrub = page.get_by_label("Step", exact=True)
    half = int(scrub.get_attribute("max") or 0) // 2
    scrub.fill(str(half))
    expect(page.locator(".counts").first).to_contain_text(re.compile(r"step \d"))


def hung(page: Page) -> None:
    """Cards that all have a picture."""
    page.wait_for_function(
        """() => [...document.querySelectorAll("canvas")]
          .filter((canvas) => canvas.getBoundingClientRect().top < innerHeight)
          .every((canvas) => canvas.width !== 320 || canvas.height !== 240)"""
    )


def dropped(file: Path) -> Callable[[Page], None]:
    """A genome file that was opened."""

    def prepare(page: Page) -> None:
        page.locator("#file").set_input_files(file)
        expect(page.get_by_role("heading", level=1)).to_have_text(file.name)
        middle(page)

    return prepare


@contextmanager
def served(folder: Path, **environment: str) -> Iterator[str]:
    """The dashboard, and where it answers."""
    command = [sys.executable, "-m", "germline", "dashboard", str(folder), "--port", "0"]
    process = subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process:
        try:
            yield process.stdout.readline().partition(" at ")[2].partition(" ")[0]
        finally:
            process.terminate()


def views(browser: Browser, url: str, genome: Path) -> None:
    """Take a picture of every view of a dashboard."""
    rows = browser.new_context().request.get(f"{url}api/runs").json()["runs"]
    of = {row["name"]: row for row in rows}

    def at(run: str, view: str = "") -> str:
        return f"{url}#/run/{of[run]['key']}{view.replace('ID', of[run]['champion'])}"

    take(browser, "runs", url, compared)
    take(browser, "run", at("lander"), bands)
    take(browser, "population", at("maze/novelty", "/population/30"), places)
    take(browser, "lineage", at("lander", "/lineage/ID"), ancestors)
    take(browser, "individual", at("frostbite", "/individual/ID"), played)
    take(browser, "gallery", f"{url}#/gallery", hung)
    take(browser, "file", url, dropped(genome))
    take(browser, "phone", url, size=PHONE)
    take(browser, "phone-dark", at("lander"), below, PHONE, "dark")


def main() -> None:
    """Make the runs, and take the pictures."""
    folder = Path(sys.argv[1]) / "runs"
    for name, what in RUNS.items():
        if not (folder / name / "run.db").exists():
            subprocess.run([*TRAIN, *what, "--out", str(folder / name)], check=True)
    genome, page = folder.parent / "lander.json", folder.parent / "lander.html"
    export = [sys.executable, "-m", "germline", "export"]
    run = str(folder / "lander")
    subprocess.run([*export, "genome", run, "--out", str(genome), "--force"], check=True)
    subprocess.run([*export, "--html", run, "--out", str(page), "--force"], check=True)
    expect.set_options(timeout=120_000)
    with sync_playwright() as playwright:
        # Root, which containers often have, has no sandbox; the pages are our own.
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        with served(folder) as url:
            views(browser, url, genome)
        with served(folder, GERMLINE_TOKEN="open sesame") as url:
            take(browser, "login", url, size=LOW)
        take(browser, "export", page.absolute().as_uri(), bands)
        browser.close()


if __name__ == "__main__":
    main()
