"""What is seen of a run while it works: in a real terminal, in a pipe, as JSON, not at all."""

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

import servers
from germline.cli.output import progress
from germline.run.loop import Ending, Moment
from germline.run.stop import Totals
from runs import go_on, run, small, write

SUPPORT = Path(__file__).parent.parent / "support"
CONTROL = [chr(code) for code in [*range(32), 127, *range(128, 160)] if chr(code) != "\n"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty folder, and an environment that speaks of a terminal where there is none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORCE_COLOR", "")
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.fixture
def train(germline, tmp_path):
    """Train, not at a terminal; give the output and the error."""

    def call(*arguments):
        write(tmp_path / "spec.toml")
        code, out, err = germline("train", "spec.toml", "--trust", *arguments)
        assert code == 0
        return out, err

    return call


@pytest.mark.parametrize("mode", [["--plain"], ["--json"], ["--quiet"]], ids=str)
def test_without_a_terminal_there_are_no_control_codes(mode, train):
    for text in train(*mode):
        assert not [c for c in text if c in CONTROL]


def test_the_real_command_writes_no_control_codes_into_a_pipe(tmp_path):
    write(tmp_path / "spec.toml")
    done = subprocess.run(
        [sys.executable, "-m", "germline", "train", "spec.toml", "--trust"],
        env=os.environ | {"PYTHONPATH": str(SUPPORT)},
        capture_output=True,
        text=True,
        check=True,
    )
    for text in (done.stdout, done.stderr):
        assert not [c for c in text if c in CONTROL]


def test_without_a_terminal_there_is_a_line_per_generation(train):
    out, err = train()
    assert err == ""
    begin, *generations, end = out.splitlines()
    assert begin == "runs/small: small · positive · ga · seed 7"
    assert [line.split()[:2] for line in generations] == [["generation", str(g)] for g in range(3)]
    assert "finished by generations 3 of 3" in end


def test_json_has_a_document_per_event(train, tmp_path):
    out, err = train("--json")
    assert err == ""
    begin, *generations, end = map(json.loads, out.splitlines())
    assert (begin["event"], begin["run"], begin["spec"]["seed"]) == ("begin", "runs/small", 7)
    assert [g["event"] for g in generations] == ["generation"] * 3
    assert [g["generation"] for g in generations] == [0, 1, 2]
    assert generations[2]["totals"] == end["totals"]
    assert (end["event"], end["finished_by"]) == ("end", "generations 3 of 3")


def test_quiet_is_quiet(train):
    assert train("--quiet") == ("", "")


@pytest.fixture
def live(monkeypatch):
    """A live display of a given width that is not drawn by itself."""

    def make(width, changes=None):
        spec = small({"stop.generations": 10, "stop.score": 9.5, **(changes or {})})
        shown = progress.Live(Path("runs/small"), spec)
        shown.console = Console(width=width, height=24, file=io.StringIO())
        return shown

    return make


def drawn(shown):
    with shown.console.capture() as capture:
        shown.console.print(shown.panel())
    return capture.get()


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_panel_fits_and_tells(width, live, tmp_path):
    reports = []
    run(tmp_path / "run", small())
    go_on(tmp_path / "run", {"stop.generations": 6}, listener=lambda *both: reports.append(both))
    shown = live(width, {"backend.price": 2.0})
    shown.begin([])
    assert "the first takes" in drawn(shown)
    for report, totals in reports:
        shown.generation(report, totals)
    shown.tick(Moment(6, 0, 3, 6, 100, 2, reports[-1][1].seconds, reports[-1][1].cost))
    text = drawn(shown)
    lines = text.splitlines()
    assert {len(line) for line in lines} == {min(width, progress.WIDEST)}
    words = ["3 of 10", "evaluating 3/6, 2 workers", "best", "mean", "elite", "target 9.5"]
    if width < 80:
        return
    for word in [*words, reports[-1][0].champion[:8], "per second", "left, by generations", "cost"]:
        assert word in text, word
    shown.over = True
    assert "left" not in drawn(shown)


def test_a_resumed_run_shows_its_history(live, tmp_path):
    reports = []
    folder = tmp_path / "run"
    run(folder, small())
    go_on(folder, {"stop.generations": 5}, listener=lambda *both: reports.append(both))
    shown = live(80)
    shown.begin(reports)
    assert "2 of 10" in drawn(shown)
    assert shown._elapsed() >= reports[-1][1].seconds


def test_the_display_is_for_terminals(monkeypatch):
    def chosen(**flags):
        flags = {"json": False, "plain": False, "quiet": False, **flags}
        return type(progress.choose(Path("run"), small(), **flags)).__name__

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert chosen() == "Live"
    assert chosen(plain=True) == "Plain"
    assert chosen(json=True) == "Json"
    assert chosen(quiet=True) == "Quiet"
    monkeypatch.setenv("TERM", "dumb")
    assert chosen() == "Plain"


def test_a_stop_says_how_to_go_on_even_if_quiet(capsys):
    shown = progress.Quiet(Path("run"), small())
    shown.end(Ending("score 1 of 1", 3, Totals(3, 1, 1, 1.0, 0.0)), "Watch it.")
    assert capsys.readouterr().out == ""
    shown.end(Ending(None, 3, Totals(3, 1, 1, 1.0, 0.0)), "Go on.")
    assert capsys.readouterr().out == "run: stopped in generation 3, nothing is lost. Go on.\n"


@pytest.mark.system
@pytest.mark.parametrize("width", [80, 200])
def test_in_a_real_terminal(width, tmp_path):
    """Drawn in place, within the width, and gone on to the end."""
    tmux = [servers.program("tmux"), "-f", os.devnull, "-S", str(tmp_path / "socket")]
    write(tmp_path / "spec.toml", {"task.name": "noted", "stop.generations": 40})
    command = f"{sys.executable} -m germline train spec.toml --trust; exec cat"
    size = ["-x", str(width), "-y", "24"]
    # These speak of the terminal that the tests were started from, or of none.
    others = ("COLUMNS", "LINES", "FORCE_COLOR")
    outside = {k: v for k, v in os.environ.items() if k not in others}
    environment = outside | {
        "PYTHONPATH": str(SUPPORT),
        "NOTES": str(tmp_path / "notes"),
        "LC_ALL": "C.UTF-8",
    }

    def screen():
        done = subprocess.run(
            [*tmux, "capture-pane", "-p"], capture_output=True, check=True, encoding="utf-8"
        )
        return done.stdout

    def widths(text):
        return {len(line) for line in text.splitlines() if line.startswith(("╭", "│", "╰"))}

    def seen(*words):
        """The screen once it has these words; a terminal may take its size a moment late."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            text = screen()
            fits = widths(text) == {min(width, progress.WIDEST)}
            if fits and all(word in text for word in words):
                return text
        raise AssertionError(f"{words} not in\n{text}")

    subprocess.run(
        [*tmux, "-u", "new-session", "-d", *size, command],
        cwd=tmp_path,
        env=environment,
        check=True,
    )
    try:
        seen("generation", "of 40", "evaluating", "best", "per second")
        text = seen("finished by generations 40 of 40")
        # One panel, at the top: it was drawn in place, not one below the other.
        assert text.count("╭") == 1
        assert text.startswith("╭")
        assert "40 of 40" in text
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
