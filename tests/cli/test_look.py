"""What is in a run, and what there is to run: show, runs, digest, presets, envs, doctor, export."""

import csv
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest
import typer
from pyarrow import parquet
from safetensors.numpy import load_file

from commands import ok
from germline import files, paper, presets
from germline.algorithms.protocols import Report
from germline.cli import app, doctor, envs
from germline.run import database
from germline.run import spec as specs
from germline.run.store import Store
from runs import ALGORITHMS, begin, digest, run, small

GOLDEN = Path(__file__).parent.parent / "golden" / "genome.json"
HERE = ".".join(map(str, sys.version_info[:2]))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Finished runs of two algorithms, and one that was only begun; not to be changed."""
    folder = tmp_path_factory.mktemp("made")
    run(folder / "ga", small({"stop.generations": 4}))
    run(folder / "es", small({"stop.generations": 4}, "es"))
    begin(folder / "begun", small())
    return folder


def by_hand(folder):
    """All there is to know about individuals: {id: (generation, parent, root's weights, returns)}.

    Read from the tables, with no help of the store.
    """
    database = sqlite3.connect(folder / "run.db")
    played = {}
    for who, data in database.execute("SELECT individual, returns FROM evaluations"):
        played.setdefault(who, []).extend(np.frombuffer(data, "<f8").tolist())
    rows = database.execute("SELECT id, generation, parent, snapshot FROM individuals").fetchall()
    database.close()
    return {who: (*about, played[who]) for who, *about in rows}


def name(who):
    return f"{who % 2**64:016x}"


def mean(numbers):
    return sum(numbers) / len(numbers)


def line_of(folder, champion):
    """The individuals from the root to a champion, or the centres of ES."""
    known = by_hand(folder)
    if any(snapshot for _, _, snapshot, _ in known.values()):
        centres = [(at, who) for who, (at, parent, _, _) in known.items() if parent is None]
        return [(name(who), known[who][3]) for _, who in sorted(centres)]
    at = next(who for who in known if name(who) == champion)
    line = []
    while at is not None:
        line.insert(0, (name(at), known[at][3]))
        at = known[at][1]
    return line


@pytest.mark.parametrize("algorithm", ["ga", "es"])
def test_the_gains_of_a_lineage_are_those_computed_by_hand(algorithm, germline, made):
    shown = json.loads(ok(germline("show", made / algorithm, "--json")))
    expected = line_of(made / algorithm, shown["champion"])
    assert len(expected) > 2
    means = [mean(returns) for _, returns in expected]
    found = shown["lineage"]
    assert [step["id"] for step in found] == [who for who, _ in expected]
    assert [step["episodes"] for step in found] == [len(returns) for _, returns in expected]
    assert [step["mean"] for step in found] == means
    assert found[0]["gain"] is None
    gains = [after - before for before, after in pairwise(means)]
    assert [step["gain"] for step in found[1:]] == gains
    assert [step["gene"] is None for step in found] == [
        algorithm == "es" or place == 0 for place in range(len(found))
    ]

    text = ok(germline("show", made / algorithm))
    for step in found[1:]:
        line = next(line for line in text.splitlines() if line.startswith(step["id"])
                    and line.endswith(f"{step['gain']:+,.4g}"))  # fmt: skip
        assert f" {step['generation']} " in line


def test_show_says_what_a_run_is(germline, made):
    out = ok(germline("show", made / "ga"))
    assert "ga, finished, by generations 4 of 4" in " ".join(out.split())
    assert "positive, mlp in float32, ga, seed 7" in out
    assert "4 generations, 24 individuals, 32 evaluations" in out
    with Store.open(made / "ga") as store:
        reports = store.reports()
    assert f"Watch one with: germline play {made / 'ga'}:{reports[-1].champion[:8]}" in out
    chart = [line.partition("│")[2] for line in out.splitlines() if "│" in line]
    assert len(chart) == 12
    assert all(
        character == " " or 0x2800 <= ord(character) < 0x2900 for character in "".join(chart)
    )
    assert "\x1b" not in out

    shown = json.loads(ok(germline("show", made / "ga", "--json")))
    assert {
        *("run", "name", "seed", "task", "policy", "algorithm", "arithmetic", "state", "pruned"),
        *("finished_by", "individuals", "evaluations", "elite", "champion"),
        *("generations", "frames", "steps", "seconds", "cost", "reports", "best", "lineage"),
        *("cost_per_billion_frames", "to_go"),
    } == set(shown)
    assert [msgspec.convert(report, Report) for report in shown["reports"]] == reports
    assert shown["elite"] == reports[-1].elite


def test_show_lists_the_best_of_a_generation(germline, made):
    rows = json.loads(ok(germline("show", made / "ga", "--generation", 2, "--json")))
    with Store.open(made / "ga") as store:
        returns = {}
        for scored in store.scores(2):
            returns.setdefault(scored.id, []).extend(scored.returns)
    assert {row["id"]: row["mean"] for row in rows} == {
        who: mean(played) for who, played in returns.items()
    }
    assert [row["mean"] for row in rows] == sorted((row["mean"] for row in rows), reverse=True)
    for row in rows:
        played = returns[row["id"]]
        assert (row["episodes"], row["low"], row["high"]) == (len(played), min(played), max(played))

    two = json.loads(ok(germline("show", made / "ga", "--generation", 2, "--top", 2, "--json")))
    assert two == rows[:2]
    out = ok(germline("show", made / "ga", "--generation", 2, "--top", 2)).splitlines()
    assert out[0].strip() == "Generation 2, the best"
    assert [line.split()[0] for line in out[2:]] == [row["id"] for row in two]


def test_show_lists_as_many_as_asked(germline, made):
    best = json.loads(ok(germline("show", made / "ga", "--top", 3, "--json")))["best"]
    assert len(best) == 3
    with Store.open(made / "ga") as store:
        champion = store.reports()[-1].champion
        needed = sum(len(s.returns) for s in store.scores(3) if s.id == champion) / 2
    assert all(row["episodes"] >= needed for row in best)


def test_a_run_that_was_only_begun(germline, made):
    assert "No generation is finished yet." in ok(germline("show", made / "begun"))
    shown = json.loads(ok(germline("show", made / "begun", "--json")))
    assert (shown["state"], shown["elite"], shown["champion"]) == ("stopped", None, None)
    assert shown["reports"] == shown["best"] == shown["lineage"] == []
    assert len(ok(germline("digest", made / "begun"))) == 65


def test_runs_are_listed_whatever_their_state(germline, made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for source in made.iterdir():
        shutil.copytree(source, tmp_path / source.name)
    shutil.copytree(made / "ga", tmp_path / "torn")
    (tmp_path / "torn/run.db").write_bytes(b"not a database" * 100)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    lock = database.locked(tmp_path / "begun")
    rows = {Path(r["run"]).name: r for r in json.loads(ok(germline("runs", tmp_path, "--json")))}
    out = " ".join(ok(germline("runs", ".")).split())  # src: a long path leaves no room
    os.close(lock)
    assert list(rows) == ["begun", "es", "ga", "torn"]
    assert [rows[name].get("state") for name in rows] == ["running", "finished", "finished", None]
    assert rows["torn"]["error"].endswith("run.db: cannot be read: file is not a database")
    shown = json.loads(ok(germline("show", tmp_path / "ga", "--json")))
    assert rows["ga"] == {name: shown[name] for name in rows["ga"]}
    assert "positive ga 4 " in out
    assert "positive es 4 " in out
    assert "file is not a database" in out
    alone = json.loads(ok(germline("runs", tmp_path / "ga", "--json")))
    assert [row["run"] for row in alone] == [str(tmp_path / "ga")]


def test_a_folder_without_runs(germline, tmp_path):
    out = ok(germline("runs", tmp_path))
    assert out == f"{tmp_path}: has no runs; begin one with: germline train cartpole\n"
    assert json.loads(ok(germline("runs", tmp_path, "--json"))) == []


def test_digest_is_the_stores(germline, made):
    assert ok(germline("digest", made / "es")) == f"{digest(made / 'es')}\n"


@pytest.mark.filterwarnings("ignore:builtin type Swig:DeprecationWarning")  # of Box2D
@pytest.mark.parametrize("name", presets.names())
def test_a_preset_is_printed_as_it_is_and_resolves(name, germline):
    text = ok(germline("presets", name))
    assert text == (presets.FOLDER / f"{name}.toml").read_text()
    assert tomllib.loads(text)["name"] == name
    resolved = specs.resolve(specs.read(presets.find(name)))
    assert resolved.spec.stop.score is not None or resolved.spec.stop.frames is not None
    assert resolved.spec.imports == ()


def test_presets_are_listed(germline):
    rows = json.loads(ok(germline("presets", "--json")))
    assert [row["name"] for row in rows] == presets.names()
    for row in rows:
        spec = specs.read(presets.find(row["name"]))
        assert row["algorithm"] == spec.algorithm["name"]
        assert row["task"] == spec.task.get("id", spec.task.get("game", spec.task["name"]))
        whole = spec.stop.frames is None or spec.stop.frames >= paper.FRAMES
        if spec.stop.score is not None:
            assert row["target"] == spec.stop.score
        else:
            assert (row["target"] is not None) == whole
        assert row["about"].endswith(".")
    out = ok(germline("presets"))
    targets = {row["name"]: row["target"] for row in rows}
    assert (targets["frostbite"], targets["frostbite-es"], targets["skiing"]) == (4536, 370, -6502)
    assert all(any(line.startswith(f"{n} ") for line in out.splitlines()) for n in presets.names())
    assert out.endswith("Begin one with: germline train NAME\n")


def test_environments_are_listed_with_what_they_need(germline):
    rows = json.loads(ok(germline("envs", "--json")))
    assert all(set(row) == {"id", "task", "suite", "origin", "needs"} for row in rows)
    tasks = {(row["id"], row["task"], row["suite"]) for row in rows}
    assert ("CartPole-v1", "gym", None) in tasks
    assert ("CartPole-v1", "functional", "gymnasium") in tasks
    assert ("CartPole-v0", "gym", None) not in tasks  # an older version of the same
    own = [row["id"] for row in rows if row["origin"] == "germline"]
    assert own == [row["task"] for row in rows[: len(own)]]
    assert own == [row["id"] for row in envs._own()] == sorted(own)
    assert {"bandit", "maze", "memorize", "saccade"} <= set(own)
    few = json.loads(ok(germline("envs", "cartpole", "--json")))
    assert few == [row for row in rows if "cartpole" in row["id"].lower()]
    assert 1 < len(few) < len(rows)
    lines = ok(germline("envs", "cartpole")).splitlines()
    assert [line.split()[0] for line in lines[1:]] == [row["id"] for row in few]


@pytest.mark.parametrize(("versions", "word"), [(("3.1", HERE), "tested"), (("3.1",), "not tried")])
def test_the_doctor_knows_what_python_was_tested(versions, word, monkeypatch):
    monkeypatch.setattr(doctor, "TESTED", versions)
    assert doctor._platform()["python_support"] == f"{HERE}: {word}"


def test_the_doctor_says_what_works(germline):
    facts = json.loads(ok(germline("doctor", "--json")))
    assert set(facts) == {"machine", "packages", "extras", "platform", "speed"}
    assert facts["platform"]["same_bits"] is True
    assert facts["platform"]["terminal"] is False
    assert facts["platform"]["python_support"].startswith(f"{HERE}: ")
    assert {"germline", "jax", "numpy", "gymnasium"} <= set(facts["packages"])
    assert all(facts["packages"].values())
    assert all(speed > 0 for speed in facts["speed"].values())


def test_metrics_are_a_row_per_generation(germline, made, tmp_path):
    out = tmp_path / "metrics.csv"
    said = ok(germline("export", "metrics", made / "ga", "--out", out, "--include", "costs"))
    with Store.open(made / "ga") as store:
        progress = store.progress()
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert said == f"{out}: 4 rows of {len(rows[0])} columns\n"
    for row, (report, totals) in zip(rows, progress, strict=True):
        expected = msgspec.to_builtins(report)
        expected |= {f"total_{name}": value for name, value in totals._asdict().items()}
        assert row.items() >= {k: "" if v is None else str(v) for k, v in expected.items()}.items()
        foreseen = {"cost_per_billion_frames", "seconds_to_go", "cost_to_go"}
        assert set(row) - set(expected) == foreseen


def test_evaluations_are_a_row_each_and_parquet_says_the_same(germline, made, tmp_path):
    plain, packed = tmp_path / "all.csv", tmp_path / "all.parquet"
    for out in (plain, packed):
        ok(germline("export", "evaluations", made / "ga", "--out", out))
    with plain.open() as file:
        rows = list(csv.DictReader(file))
    table = parquet.read_table(packed).to_pylist()
    assert len(rows) == 32
    assert rows == [{k: "" if v is None else str(v) for k, v in row.items()} for row in table]
    with Store.open(made / "ga") as store:
        for row, scored in zip(table, store.scores(), strict=True):
            assert row["individual"] == scored.id
            assert row["fitness"] == mean(scored.returns)
            assert (row["episodes"], row["failure"]) == (len(scored.returns), None)


def test_an_individual_is_exported_by_the_start_of_its_id(germline, made, tmp_path):
    with Store.open(made / "ga") as store:
        who = next(iter(store.scores())).id
        genome = store.genome(who)
    for given in (who, who[:8]):
        out = tmp_path / f"{given}.json"
        said = ok(germline("export", "genome", f"{made / 'ga'}:{given}", "--out", out, "--trust"))
        assert said == f"{out}: {who}, 0 genes\n"
        assert files.read(out).genome == genome


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_exported_weights_are_those_of_the_exported_genome(algorithm, germline, made, tmp_path):
    folder = made / algorithm
    if algorithm == "random-search":
        folder = tmp_path / "run"
        run(folder, small({}, algorithm))
    genome, weights, decoded = (tmp_path / n for n in ("g", "w.safetensors", "d.safetensors"))
    ok(germline("export", "genome", folder, "--out", genome, "--trust"))
    ok(germline("export", "weights", folder, "--out", weights, "--trust"))
    ok(germline("genome", "decode", genome, "--out", decoded))
    tensors, expected = load_file(weights), load_file(decoded)
    assert {n: t.tobytes() for n, t in tensors.items()} == {
        n: t.tobytes() for n, t in expected.items()
    }
    assert sum(tensor.size for tensor in tensors.values()) == 17
    assert files.read(genome).task.name == "positive"
    (tmp_path / "old").write_text("old")
    ok(germline("export", "genome", genome, "--out", tmp_path / "old", "--force"))
    assert (tmp_path / "old").read_bytes() == genome.read_bytes()


def commands(group, path=()):
    for name, command in group.commands.items():
        yield [*path, name]
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


EVERY = list(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("path", [[], *EVERY], ids=" ".join)
def test_every_command_has_help(path, germline):
    for option in ("--help", "-h"):
        assert "Usage" in ok(germline(*path, option))


LIGHT = [
    *([*path, "--help"] for path in ([], *EVERY)),
    ["--version"],
    ["digest", "RUN"],
    ["show", "RUN"],
    ["show", "RUN", "--generation", "1", "--json"],
    ["runs", "RUN"],
    ["presets"],
    ["presets", "cartpole"],
    ["export", "metrics", "RUN", "--out", "OUT/metrics.csv"],
    ["export", "evaluations", "RUN", "--out", "OUT/evaluations.parquet"],
    ["genome", "new", "mlp"],
    ["genome", "show", str(GOLDEN)],
]
PROGRAM = """
import functools, json, sys, typer.main
from germline.cli import main
typer.main.get_command = functools.cache(typer.main.get_command)  # which takes longer than most
for arguments in json.loads(sys.argv[1]):
    try:
        main(arguments)
    except SystemExit as left:
        assert not left.code, arguments
    heavy = {"jax", "equinox", "gymnasium", "optax"} & set(sys.modules)
    assert not heavy, (arguments, heavy)
"""


def test_light_commands_never_import_jax(made, tmp_path):
    """All of them in one process: what one of them imports, the next would have at hand."""
    texts = [[a.replace("RUN", str(made / "ga")).replace("OUT", str(tmp_path)) for a in arguments]
             for arguments in LIGHT]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(texts)],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["evaluations.parquet", "metrics.csv"]
