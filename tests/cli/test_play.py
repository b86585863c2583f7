"""How good an individual is, and the sight of it: eval and play."""

import json
import os
import pty
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from math import sqrt

import imageio
import pytest

import servers
from commands import ok, refused
from germline import files, policies
from germline.files import GenomeFile, TaskRef
from germline.genome import Birth, Genome
from germline.run.store import Store
from runs import CARTPOLE, run, small

FUNCTIONAL = CARTPOLE | {"task": {"name": "functional", "id": "CartPole-v1"}}
PENDULUM = CARTPOLE | {"task": {"name": "functional", "id": "Pendulum-v1", "limit": 20}}
NORMAL = {"policy": {"name": "mlp", "hidden": [4], "normalise": "observations"}}
RUNS = {
    "gym": (CARTPOLE, "ga"),
    "functional": (FUNCTIONAL, "ga"),
    "normal": (CARTPOLE | NORMAL | {"stop": {"generations": 3}}, "es"),
    "pendulum": (PENDULUM | NORMAL | {"stop": {"generations": 2}}, "es"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Finished runs of several kinds; not to be changed."""
    folder = tmp_path_factory.mktemp("made")
    for name, (spec, algorithm) in RUNS.items():
        run(folder / name, small(spec, algorithm))
    return folder


@pytest.fixture(autouse=True)
def blind(monkeypatch):
    """No screen."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


def evaluated(germline, *arguments):
    return json.loads(ok(germline("eval", *arguments, "--json")))


def champion(folder):
    with Store.open(folder) as store:
        return store.reports()[-1].champion


def test_eval_in_json_and_in_a_sentence(germline, made):
    given = (made / "gym", "--episodes", 5, "--seed", 3, "--workers", 1)
    found = evaluated(germline, *given)
    returns = found["returns"]
    assert set(found) == {
        *("id", "episodes", "mean", "standard_error", "median", "returns", "steps", "frames")
    }
    assert (found["id"], found["episodes"], len(returns)) == (champion(made / "gym"), 5, 5)
    assert found["mean"] == statistics.fmean(returns)
    assert found["median"] == statistics.median(returns)
    assert found["standard_error"] == pytest.approx(statistics.stdev(returns) / sqrt(5))
    assert found["steps"] == found["frames"] == returns  # a point for every step of CartPole
    sentence = ok(germline("eval", *given))
    assert sentence.startswith(f"{found['id']}: mean ")
    assert "over 5 fresh episodes" in sentence
    assert sentence.endswith(f"from {min(returns):,.0f} to {max(returns):,.0f}\n")


def test_a_single_episode_has_no_error(germline, made):
    found = evaluated(germline, made / "gym", "--episodes", 1)
    assert (found["standard_error"], found["mean"]) == (0, found["returns"][0])


def test_seeds_are_other_episodes_and_more_of_them_begin_alike(germline, made):
    few, more, other = (
        evaluated(germline, made / "functional", "--episodes", n, "--seed", seed, "--workers", 1)
        for n, seed in ((4, 1), (20, 1), (4, 2))
    )
    assert more["returns"][:4] == few["returns"] != other["returns"]


def test_the_number_of_workers_changes_nothing(germline, made):
    """Of an individual whose workers need its weights and its statistics."""
    given = (made / "normal", "--episodes", 20)
    one, two = (evaluated(germline, *given, "--workers", n) for n in (1, 2))
    assert one == two


@pytest.mark.parametrize("name", RUNS)
def test_an_exported_genome_scores_as_its_run_does(name, germline, made, tmp_path):
    ending = "json" if RUNS[name][1] == "ga" else "safetensors"
    out = tmp_path / f"champion.{ending}"
    ok(germline("export", "genome", made / name, "--out", out))
    file = files.read(out)
    assert (file.weights is None) == (ending == "json")
    assert (file.normaliser is None) == (ending == "json")
    given = ("--episodes", 6, "--workers", 1)
    assert evaluated(germline, out, *given) == evaluated(germline, made / name, *given)
    # Exported once more, a file stays what it is.
    ok(germline("export", "genome", out, "--out", tmp_path / "again"))
    assert (tmp_path / "again").read_bytes() == out.read_bytes()


def test_statistics_are_part_of_the_score(germline, made, tmp_path):
    """What a normalising policy is exported with is what it was scored with, not a default."""
    out = tmp_path / "champion.safetensors"
    ok(germline("export", "genome", made / "normal", "--out", out))
    file = files.read(out)
    plain = files.Normaliser((0.0,) * 4, (1.0,) * 4)
    assert file.normaliser != plain
    changed = GenomeFile(file.genome, file.task, file.arithmetic, plain, file.weights)
    files.write(tmp_path / "plain.safetensors", changed)
    given = ("--episodes", 6, "--workers", 1)
    scores = [evaluated(germline, path, *given) for path in (out, tmp_path / "plain.safetensors")]
    assert scores[0]["id"] == scores[1]["id"]
    assert scores[0]["returns"] != scores[1]["returns"]


def test_anyone_who_lived_is_scored_by_the_start_of_an_id(germline, made):
    folder = made / "gym"
    with Store.open(folder) as store:
        who = next(s.id for s in store.scores() if s.id != store.reports()[-1].champion)
    given = ("--episodes", 2, "--workers", 1)
    whole, short = (evaluated(germline, f"{folder}:{name}", *given) for name in (who, who[:6]))
    assert whole == short
    assert whole["id"] == who


def test_a_genome_without_a_task_plays_what_is_said(germline, tmp_path):
    spec = policies.make("mlp", {"inputs": 4, "hidden": [4], "outputs": 2})
    egg = Genome(policies.reference("mlp", spec), Birth(1))
    files.write(tmp_path / "egg.json", GenomeFile(egg))
    files.write(tmp_path / "own.json", GenomeFile(egg, TaskRef("gym", {"id": "CartPole-v1"})))
    given = ("--episodes", 3, "--workers", 1)
    said = evaluated(germline, tmp_path / "egg.json", "--env", "CartPole-v1", *given)
    assert said == evaluated(germline, tmp_path / "own.json", *given)


def test_a_cap_ends_episodes(germline, made):
    for name in ("gym", "functional"):
        found = evaluated(germline, made / name, "--episodes", 3, "--cap", 5, "--workers", 1)
        assert found["steps"] == [5, 5, 5]


def test_at_least_is_an_exit_code(germline, made):
    given = ("eval", made / "gym", "--episodes", 2, "--workers", 1, "--json")
    mean = json.loads(ok(germline(*given)))["mean"]
    assert json.loads(ok(germline(*given, "--at-least", mean)))["mean"] == mean
    code, out, err = germline(*given, "--at-least", mean + 1)
    assert (code, err) == (1, "")
    assert json.loads(out)["mean"] == mean


def pictures(path):
    """The shapes of a film's pictures."""
    with imageio.get_reader(path) as film:
        return [picture.shape for picture in film]


@pytest.mark.parametrize("name", ["gym", "functional", "normal"])
def test_a_film_has_the_score_of_eval(name, germline, made, tmp_path):
    out, given = tmp_path / "film.gif", ("--seed", 5, "--cap", 60)
    said = ok(germline("play", made / name, *given, "--out", out)).splitlines()
    score = evaluated(germline, made / name, *given, "--episodes", 1)
    assert said == [
        f"episode 0: score {score['mean']:,.0f} in {score['steps'][0]} steps",
        f"{out}: {out.stat().st_size:,} bytes",
    ]
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    shapes = pictures(out)
    assert set(shapes) == {(428, 600, 3)}
    assert len(shapes) == score["steps"][0] + 1


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # pipes of imageio
@pytest.mark.parametrize("name", ["gym", "functional"])
def test_an_mp4_has_a_picture_per_step(name, germline, made, tmp_path):
    out = tmp_path / "film.mp4"
    said = ok(germline("play", made / name, "--cap", 7, "--out", out))
    assert said.splitlines()[0] == "episode 0: score 7 in 7 steps"
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    assert pictures(out) == [(428, 600, 3)] * 8


@pytest.mark.slow
def test_nothing_else_is_said_while_ffmpeg_works(made, tmp_path):
    given = ["play", made / "gym", "--cap", "7", "--out", tmp_path / "film.mp4"]
    command = [sys.executable, "-m", "germline", *given]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_film_that_is_there_is_replaced_only_if_said(germline, made, tmp_path):
    out = tmp_path / "film.gif"
    out.write_text("old")
    given = ("play", made / "gym", "--cap", 3, "--out", out)
    assert refused(germline(*given)) == f"{out}: is there already; use --force to replace it"
    assert out.read_text() == "old"
    ok(germline(*given, "--force"))
    assert set(pictures(out)) == {(428, 600, 3)}


@pytest.mark.parametrize("name", RUNS)
def test_text_has_a_line_per_step(name, germline, made):
    out = ok(germline("play", made / name, "--how", "text", "--episodes", 2)).splitlines()
    assert out == ok(germline("play", made / name, "--episodes", 2)).splitlines()  # in a pipe
    steps, episodes = out[:-2], out[-2:]
    score = evaluated(germline, made / name, "--episodes", 2, "--workers", 1)
    assert len(steps) == sum(score["steps"])
    assert [line.split()[1] for line in steps[: score["steps"][0]]] == [
        str(number + 1) for number in range(score["steps"][0])
    ]
    end = "time limit" if name == "pendulum" else "terminated"
    assert sum(line.endswith(f"  {end}") for line in steps) == 2
    for place, (line, count) in enumerate(zip(episodes, score["steps"], strict=True)):
        assert line.startswith(f"episode {place}: score ")
        assert line.endswith(f" in {count} steps")


def test_a_cap_ends_what_is_watched(germline, made):
    out = ok(germline("play", made / "functional", "--cap", 3)).splitlines()
    assert len(out) == 4
    assert out[2].endswith("score 3  cap")
    assert out[3] == "episode 0: score 3 in 3 steps"


def read(descriptor):
    """Everything that is written to a terminal until nobody has it open."""
    parts = []
    while True:
        try:
            part = os.read(descriptor, 65536)
        except OSError:  # the last who wrote is gone
            part = b""
        if not part:
            return b"".join(parts).decode()
        parts.append(part)


HIDDEN, VISIBLE = "\x1b[?25l", "\x1b[?25h"  # the cursor


@pytest.fixture
def terminal(germline, monkeypatch):
    """The command line on a terminal: its exit code, what was shown there, and its error."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "23")
    monkeypatch.setenv("TERM", "xterm-256color")

    def call(*arguments):
        outside, inside = pty.openpty()
        with ThreadPoolExecutor(1) as reader, os.fdopen(inside, "w") as stream:
            shown = reader.submit(read, outside)
            with monkeypatch.context() as patch:
                patch.setattr(sys, "stdout", stream)
                code, _, err = germline(*arguments)
        os.close(outside)
        return code, shown.result(), err

    return call


def check_half_blocks(shown):
    """Four steps of a pole and a cart were drawn, and the cursor is back."""
    assert shown.startswith(HIDDEN)
    assert shown.rindex(VISIBLE) > shown.rindex("▀") > shown.rindex(HIDDEN)
    frames = shown.split("\x1b[H")[1:]
    assert len(frames) == 5
    for step, frame in enumerate(frames):
        assert f"step {step}  score {step}\x1b[K" in frame
        lines = frame.split("\n")
        blocks = [line.count("▀") for line in lines if "▀" in line]
        # 600 by 400 pixels, 60 columns wide, in rows of two pixels each.
        assert blocks == [60] * 20
    assert shown.rstrip().endswith("episode 0: score 4 in 4 steps")


def test_a_terminal_shows_half_blocks_and_gets_its_cursor_back(terminal, made):
    given = ("play", made / "gym", "--cap", 4, "--how", "terminal", "--speed", 1000)
    check_half_blocks(ok(terminal(*given)))


def test_a_terminal_is_where_the_real_command_plays_by_itself(made):
    outside, inside = pty.openpty()
    command = [sys.executable, "-m", "germline", "play", made / "gym", "--cap", "4"]
    with subprocess.Popen(
        [*map(str, command), "--speed", "1000"],
        stdin=inside,
        stdout=inside,
        stderr=subprocess.PIPE,
        env=os.environ | {"COLUMNS": "60", "LINES": "23", "TERM": "xterm-256color"},
    ) as process:
        os.close(inside)
        shown = read(outside)
        assert process.stderr.read() == b""
    os.close(outside)
    assert process.returncode == 0
    check_half_blocks(shown)


def test_a_terminal_gets_its_cursor_back_when_play_fails(terminal, tmp_path):
    """A genome for an environment that draws nothing."""
    spec = policies.make("mlp", {"inputs": 4, "hidden": [4], "outputs": 2})
    egg = Genome(policies.reference("mlp", spec), Birth(1))
    task = TaskRef("functional", {"id": "CartPole-v1", "suite": "gymnax"})
    files.write(tmp_path / "egg.json", GenomeFile(egg, task))
    code, shown, error = terminal("play", tmp_path / "egg.json")
    assert code == 2
    assert shown.rindex(VISIBLE) > shown.rindex(HIDDEN)
    assert error.startswith("germline: pictures: ")
    assert error.endswith("; germline play --how text needs none\n")


@pytest.mark.system
def test_an_episode_is_played_in_a_window(tmp_path):
    servers.program("Xvfb")
    spec = policies.make("mlp", {"inputs": 4, "hidden": [4], "outputs": 2})
    genome = Genome(policies.reference("mlp", spec), Birth(1))
    file = GenomeFile(genome, TaskRef("gym", {"id": "CartPole-v1"}))
    files.write(tmp_path / "genome.json", file)
    command = ["-m", "germline", "play", "genome.json", "--how", "window", "--speed", "1000"]
    clean = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "SDL_VIDEODRIVER")}
    done = subprocess.run(
        [servers.program("xvfb-run"), "-a", sys.executable, *command, "--cap", "5"],
        cwd=tmp_path,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "episode 0: score 5 in 5 steps\n"
