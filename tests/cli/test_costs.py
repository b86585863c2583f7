"""What a run costs, wherever it is shown."""

import csv
import io
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console
from tensorboard.backend.event_processing import plugin_event_multiplexer as reader
from tensorboard.util import tensor_util

from commands import ok, refused
from germline.cli.output import progress
from germline.run.loop import Moment
from germline.run.stop import NOTHING
from germline.run.store import Store
from runs import begin, go_on, run, small, write

DEAR = {"backend.price": 3600.0}  # a second of a worker costs 1
LINE = r"cost [\d,.e-]+, [\d,.e+]+ per billion frames, {}[\d,.e-]+ to go"


@pytest.fixture(scope="module")
def paid(tmp_path_factory):
    """A folder with a run that was paid for and stopped, and one that was for nothing."""
    folder = tmp_path_factory.mktemp("paid")
    run(folder / "dear", small(DEAR))
    run(folder / "free", small())
    spec = folder / "dear" / "spec.toml"
    spec.write_text(spec.read_text().replace("generations = 3", "generations = 9"))
    return folder


@pytest.fixture
def trained(germline, tmp_path):
    """Train a small run that costs something; give the lines that were said."""

    def call(*arguments, **changes):
        spec = write(tmp_path / "spec.toml", DEAR | changes)
        return ok(
            germline("train", spec, "--trust", "--out", tmp_path / "run", *arguments)
        ).splitlines()

    return call


def test_plain_lines_say_what_is_to_go(trained):
    _, *generations, _ = trained("--plain")
    assert all(re.search(LINE.format("") + "$", line) for line in generations)
    assert generations[-1].endswith(", 0 to go")


def test_what_a_score_may_cut_short_is_at_most(trained):
    _, *generations, _ = trained("--plain", **{"stop.score": 1e9})
    assert all(re.search(LINE.format("at most ") + "$", line) for line in generations)


def test_where_no_end_can_be_foreseen_nothing_is_said_of_it(trained):
    _, *generations, _ = trained("--plain", **{"stop": {"score": 12.0}})
    assert all(line.endswith(" per billion frames") for line in generations)


def test_json_lines_have_what_is_to_go(trained, tmp_path):
    _, *generations, end = map(json.loads, trained("--json"))
    for line in generations:
        totals, to_go = line["totals"], line["to_go"]
        assert line["cost_per_billion_frames"] == totals["cost"] / totals["frames"] * 1e9
        assert (to_go["rule"], to_go["at_most"]) == ("generations", False)
        assert to_go["cost"] == pytest.approx(to_go["seconds"])
    assert (generations[-1]["to_go"]["cost"], end["totals"]) == (0, generations[-1]["totals"])


def test_show_says_what_is_to_go(germline, paid):
    out = ok(germline("show", paid / "dear"))
    assert re.search(LINE.format(""), " ".join(out.split()))
    shown = json.loads(ok(germline("show", paid / "dear", "--json")))
    with Store.open(paid / "dear") as store:
        totals = store.totals()
    assert shown["state"] == "stopped"
    assert shown["cost_per_billion_frames"] == totals.cost / totals.frames * 1e9
    # Three generations of nine were done, all within a moment.
    assert shown["to_go"]["rule"] == "generations"
    assert shown["to_go"]["cost"] == pytest.approx(2 * totals.cost)
    assert shown["to_go"]["seconds"] == pytest.approx(2 * totals.seconds)


def test_what_is_finished_has_nothing_to_go(germline, paid):
    out = ok(germline("show", paid / "free"))
    assert "cost" not in out
    shown = json.loads(ok(germline("show", paid / "free", "--json")))
    assert (shown["cost_per_billion_frames"], shown["to_go"]) == (None, None)


def test_runs_have_a_column_of_costs_if_one_cost_anything(germline, paid, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    head, dear, free = ok(germline("runs", paid)).splitlines()
    assert " cost" in head
    run(tmp_path / "runs" / "free", small())
    assert " cost" not in ok(germline("runs", tmp_path / "runs"))
    with Store.open(paid / "dear") as store:
        assert f"{store.totals().cost:.4g}" in dear
    assert re.search(r" 0 +finished", free)


def test_metrics_have_a_column_each(germline, paid, tmp_path):
    asked = "--include", "costs"
    ok(germline("export", "metrics", paid / "dear", "--out", tmp_path / "m.csv", *asked))
    with (tmp_path / "m.csv").open() as file:
        rows = list(csv.DictReader(file))
    with Store.open(paid / "dear") as store:
        progress = store.progress()
    for row, (_, totals) in zip(rows, progress, strict=True):
        assert float(row["cost_per_billion_frames"]) == totals.cost / totals.frames * 1e9
        done = totals.generations
        assert float(row["cost_to_go"]) == pytest.approx(totals.cost / done * (9 - done))
        assert float(row["seconds_to_go"]) == pytest.approx(totals.seconds / done * (9 - done))


def test_tensorboard_has_their_curves(trained, tmp_path):
    trained("--tensorboard", "--quiet")
    found = reader.EventMultiplexer()
    found.AddRunsFromDirectory(str(tmp_path / "run" / "tensorboard"))
    found.Reload()
    (name,) = found.Runs()
    with Store.open(tmp_path / "run") as store:
        progress = store.progress()
    curves = {
        tag: [tensor_util.make_ndarray(e.tensor_proto).item() for e in found.Tensors(name, tag)]
        for tag in ("cost/per_billion_frames", "cost/to_go", "total/cost")
    }
    assert curves["total/cost"] == pytest.approx([t.cost for _, t in progress])
    dear = [t.cost / t.frames * 1e9 for _, t in progress]
    assert curves["cost/per_billion_frames"] == pytest.approx(dear)
    assert len(curves["cost/to_go"]) == 3
    assert curves["cost/to_go"][-1] == 0


def live(changes):
    shown = progress.Live(Path("runs/small"), small({"stop.generations": 10} | changes))
    shown.console = Console(width=100, height=24, file=io.StringIO())
    return shown


def drawn(shown):
    with shown.console.capture() as capture:
        shown.console.print(shown.panel())
    return " ".join(capture.get().split())


def test_the_live_display_counts_on_within_a_generation(tmp_path):
    reports = []
    begin(tmp_path / "run", small(DEAR))
    go_on(tmp_path / "run", listener=lambda *both: reports.append(both))
    shown = live(DEAR)
    shown.begin(reports[:1])
    shown.generation(*reports[1])
    totals = reports[1][1]._replace(seconds=reports[0][1].seconds + 10, cost=5.0)
    shown.generation(reports[2][0], totals._replace(generations=3, frames=10**9))
    text = drawn(shown)
    assert "cost 5 5 per billion frames, " in text
    (before,) = re.findall(r"frames, ([\d.]+) to go", text)
    shown.tick(Moment(3, 0, 1, 6, 10, 2, totals.seconds + 1, 6.0))
    text = drawn(shown)
    assert "cost 6 5 per billion frames, " in text
    (now,) = re.findall(r"frames, ([\d.]+) to go", text)
    assert float(now) == pytest.approx(float(before) - 1, abs=0.01)
    shown.over = True
    assert "to go" not in drawn(shown)


def test_what_was_paid_is_shown_when_the_price_is_gone(tmp_path):
    reports = []
    begin(tmp_path / "run", small(DEAR))
    go_on(tmp_path / "run", listener=lambda *both: reports.append(both))
    shown = live({})
    shown.begin(reports)
    assert "per billion frames" in drawn(shown)
    free = live({})
    free.begin([(reports[0][0], NOTHING)])
    assert "cost" not in drawn(free)


def test_money_that_ends_before_there_is_a_champion_says_how_to_go_on(trained, germline, tmp_path):
    *_, last = trained("--plain", **{"stop.cost": 1e-9})
    folder = tmp_path / "run"
    assert last.startswith(f"{folder}: finished by cost ")
    assert last.endswith(f"go on with: germline resume {folder} --trust --set stop.cost=MORE")
    shown = json.loads(ok(germline("show", folder, "--json")))
    assert shown["state"] == "finished"
    assert shown["finished_by"].startswith("cost ")
    assert shown["cost"] > 0
    said = ok(germline("resume", folder, "--trust", "--set", "stop.cost=1000"))
    assert "finished by generations 3 of 3" in said


@pytest.mark.parametrize("note", [b"", b"[1]", b"[1e999,1]", "text", 7, None], ids=repr)
def test_a_damaged_note_of_what_was_spent_is_said(note, germline, tmp_path):
    run(tmp_path / "run", small())
    with closing(sqlite3.connect(tmp_path / "run" / "run.db")) as db, db:
        db.execute("INSERT OR REPLACE INTO meta VALUES ('spent', ?)", (note,))
    assert "is damaged" in refused(germline("show", tmp_path / "run"))
