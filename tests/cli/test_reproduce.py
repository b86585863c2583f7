"""A game held against the paper: `reproduce`, and `eval --protocol paper`."""

import json
import signal
import statistics
import subprocess
import sys

import pytest

from commands import content, ok, refused
from germline import paper
from germline.cli import reproduce
from germline.run import spec as specs
from runs import FROSTBITE, digest, run, small, write

SIZE = 200
BRIEF = FROSTBITE | {"task": FROSTBITE["task"] | {"limit": 3}}  # with 200 episodes, and no end


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Small networks and short episodes in place of the presets."""
    monkeypatch.chdir(tmp_path)
    for algorithm in reproduce.PRESETS:
        path = write(tmp_path / f"{algorithm}.toml", BRIEF | {"stop": {}}, algorithm)
        monkeypatch.setitem(reproduce.PRESETS, algorithm, str(path))
    return tmp_path


def figure(monkeypatch, **scores):
    row = paper.TABLE["frostbite"]._replace(**scores)
    monkeypatch.setitem(paper.TABLE, "frostbite", row)


@pytest.mark.parametrize("algorithm", reproduce.PRESETS)
@pytest.mark.parametrize("game", ["frostbite", "skiing"])
def test_what_is_trained_is_what_the_paper_trained(algorithm, game):
    spec = specs.resolve(reproduce._spec(game, algorithm, 7, {})).spec
    assert (spec.arithmetic, spec.seed) == ("float32", 7)
    assert (spec.task["game"], spec.algorithm["name"]) == (game, algorithm)
    assert (spec.policy["name"], spec.policy["padding"]) == ("dqn", "same")
    assert paper.differences(spec.task) == {}
    assert spec.stop.frames == paper.FRAMES


def test_a_game_fails_and_passes_by_its_mean(germline, tiny, monkeypatch):
    given = ("reproduce", "frostbite", "--frames", 200, "--backend", "serial")
    code, out, err = germline(*given)
    assert (code, err) == (1, "")
    begin, *generations, end, scores, row, differs, verdict, fewer = out.splitlines()
    assert begin == "runs/reproduce-frostbite: reproduce-frostbite · frostbite · ga · seed 1"
    assert len(generations) == 2
    assert end.endswith("Its champion plays 200 fresh episodes now.")
    assert "over 200 fresh episodes, median" in scores
    assert row == paper.sentence("frostbite")
    assert differs == "not played as in the paper: size = [12, 10], stack = 1, limit = 3"
    assert verdict.startswith("failed: ")
    assert "is below the paper's 4,536, GA at 1,000,000,000 frames; this run played " in verdict
    played = verdict.rpartition(" ")[2]
    assert fewer == f"The comparison is at fewer frames: {played} of the paper's 1,000,000,000."

    figure(monkeypatch, ga_1b=-1)
    before = digest(tiny / "runs/reproduce-frostbite")
    again = ok(germline(*given)).splitlines()
    assert again[0].endswith(f"seed 1, {len(generations)} generations done")
    assert again[1] == end  # nothing was trained
    assert (again[2], again[4]) == (scores, differs)
    assert again[5].startswith("passed: ")
    assert " is at least the paper's -1, GA at" in again[5]
    assert digest(tiny / "runs/reproduce-frostbite") == before


def test_everything_is_in_the_json(germline, tiny):
    given = ("--frames", 100, "--seed", 5, "--out", "here", "--backend", "serial", "--json")
    code, out, err = germline("reproduce", "frostbite", "--algorithm", "es", *given)
    assert (code, err) == (1, "")
    *events, found = map(json.loads, out.splitlines())
    kinds = [event["event"] for event in events]
    assert kinds == ["begin", *["generation"] * (len(events) - 2), "end"]
    assert found["event"] == "outcome"
    assert (found["run"], found["game"], found["algorithm"]) == ("here", "frostbite", "es")
    assert (found["passed"], found["figure"], found["seed"]) == (False, 370, 5)
    assert found["figure_frames"] == paper.FRAMES
    assert found["run_frames"] == events[-1]["totals"]["frames"] >= 100
    assert (found["episodes"], len(found["returns"])) == (SIZE, SIZE)
    assert found["mean"] == pytest.approx(statistics.fmean(found["returns"]))
    assert found["median"] == statistics.median(found["returns"])
    assert found["paper"] == paper.TABLE["frostbite"]._asdict()


@pytest.mark.slow
def test_a_larger_budget_goes_on_and_a_quiet_one_says_the_outcome_alone(
    germline, tiny, monkeypatch
):
    given = ("reproduce", "amidar", "--algorithm", "random-search", "--backend", "serial", "-q")
    code, out, err = germline(*given, "--frames", 100)
    assert (code, err) == (1, "")
    assert len(out.splitlines()) == 5
    folder = tiny / "runs" / "reproduce-amidar-random-search"
    germline(*given, "--frames", 300)
    changes = {
        "arithmetic": "float32",
        "task.game": "amidar",
        "name": folder.name,
        "seed": 1,
        "stop.frames": 300,
    }
    alone = small(BRIEF | {"stop": {}} | changes, "random-search")
    assert digest(folder) == run(tiny / "alone", alone)
    assert specs.read(folder / "spec.toml").stop.frames == 300


def test_another_run_in_the_folder_is_left_alone(germline, tiny, monkeypatch):
    given = ("--frames", "100", "--backend", "serial", "--out", "run")
    germline("reproduce", "frostbite", *given)
    before = content(tiny / "run")
    for arguments, words in (
        (["amidar"], "its name is reproduce-frostbite, not reproduce-amidar; give this one"),
        (["frostbite", "--seed", "2"], "is another run, its seed is 1, not 2; give this one"),
        (
            ["frostbite", "--algorithm", "es"],
            "its name is reproduce-frostbite, not reproduce-frostbite-es",
        ),
    ):
        assert words in refused(germline("reproduce", *arguments, *given))
        assert content(tiny / "run") == before
    path = write(tiny / "ga.toml", BRIEF | {"stop": {}, "algorithm.sigma": 0.25})
    monkeypatch.setitem(reproduce.PRESETS, "ga", str(path))
    words = "is another run, its algorithm has sigma = 0.5, not 0.25; give this one another folder"
    assert words in refused(germline("reproduce", "frostbite", *given))
    assert content(tiny / "run") == before


PROGRAM = """
import sys
from germline.cli import main, reproduce
reproduce.PRESETS["ga"] = sys.argv[1]
main(sys.argv[2:])
"""


@pytest.mark.slow
def test_it_goes_on_where_a_signal_stopped_it(tmp_path):
    spec = write(tmp_path / "spec.toml", BRIEF | {"stop": {}})
    budget = ["reproduce", "frostbite", "--frames", "12000", "--out", "run", "--plain"]
    command = [sys.executable, "-c", PROGRAM, str(spec), *budget, "--backend", "serial"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline().startswith("run: reproduce-frostbite")
        assert process.stdout.readline().startswith("generation     0")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, err) == (128 + signal.SIGINT, "")
    again = "germline reproduce frostbite --frames 12000 --out run"
    assert out.splitlines()[-1].endswith(f"nothing is lost. Go on with: {again}")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert "failed: " in done.stdout
    changes = {"arithmetic": "float32", "name": "reproduce-frostbite", "seed": 1}
    alone = small(BRIEF | {"stop": {"frames": 12_000}, **changes})
    assert digest(tmp_path / "run") == run(tmp_path / "alone", alone)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    run(folder / "frostbite", small(BRIEF))
    run(folder / "pong", small(BRIEF | {"task.game": "pong", "stop.generations": 1}))
    return folder


@pytest.mark.slow
def test_the_protocol_is_200_episodes_and_the_row_of_the_game(germline, made):
    given = ("eval", made / "frostbite", "--workers", 1, "--seed", 3)
    plain = json.loads(ok(germline(*given, "--episodes", SIZE, "--json")))
    found = json.loads(ok(germline(*given, "--protocol", "paper", "--json")))
    own = {"protocol", "game", "paper", "differences"}
    assert {k: v for k, v in found.items() if k not in own} == plain
    assert (found["protocol"], found["game"]) == ("paper", "frostbite")
    assert found["paper"] == {
        "ga_1b": 4536, "ga_6b": 6220, "random_search_1b": 1164, "es_1b": 370
    }  # fmt: skip
    assert found["differences"] == {"size": [12, 10], "stack": 1, "limit": 3}
    said = ok(germline(*given, "--protocol", "paper")).splitlines()
    assert said[0] == ok(germline(*given, "--episodes", SIZE)).strip()
    assert said[1:] == [
        paper.sentence("frostbite"),
        "not played as in the paper: size = [12, 10], stack = 1, limit = 3",
    ]


def test_a_game_that_the_paper_lacks_is_scored_all_the_same(germline, made):
    given = ("eval", made / "pong", "--workers", 1, "--protocol", "paper")
    assert json.loads(ok(germline(*given, "--json")))["paper"] is None
    assert "pong: the paper has no figures for it" in ok(germline(*given))


def test_at_least_is_an_exit_code_with_the_protocol_too(germline, made):
    given = ("eval", made / "frostbite", "--workers", 1, "--protocol", "paper", "--at-least", 1e9)
    assert germline(*given)[0] == 1
