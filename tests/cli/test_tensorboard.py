"""What TensorBoard is given, read back by TensorBoard itself."""

import io
import shutil

import imageio
import pytest
from tensorboard.backend.event_processing import plugin_event_multiplexer as reader
from tensorboard.util import tensor_util

from commands import ok, refused
from germline.cli.output import films
from germline.cli.output import tensorboard as board
from germline.run.store import Store
from runs import CARTPOLE, FROSTBITE, digest, run, small, write

ATARI = FROSTBITE | {"stop": {"generations": 5}}


def read(folder):
    """All that TensorBoard sees: {tag: [(step, value)]}."""
    found = reader.EventMultiplexer(tensor_size_guidance={"scalars": 0, "images": 0})
    found.AddRunsFromDirectory(str(folder / "tensorboard"))
    found.Reload()
    (name,) = found.Runs()
    tags = found.Runs()[name]["tensors"]
    return {
        tag: [(e.step, tensor_util.make_ndarray(e.tensor_proto)) for e in found.Tensors(name, tag)]
        for tag in tags
    }


def numbers(found, tag):
    return [value.item() for _, value in found[tag]]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run of which nothing was written."""
    folder = tmp_path_factory.mktemp("plain") / "run"
    run(folder, small(ATARI))
    return folder


@pytest.fixture
def spec(tmp_path):
    return write(tmp_path / "spec.toml", ATARI)


def check_whole(folder):
    """Every generation is there once, with the numbers of the store."""
    found = read(folder)
    with Store.open(folder) as store:
        progress = store.progress()
        fitness = [
            [sum(s.returns) / len(s.returns) for s in store.scores(g) if s.phase == 0]
            for g in range(len(progress))
        ]
    steps = list(range(len(progress)))
    for tag in ("score/best", "score/mean", "score/median", "score/elite", "generation/sigma"):
        assert [step for step, _ in found[tag]] == steps
        name = tag.partition("/")[2]
        assert numbers(found, tag) == pytest.approx([getattr(r, name) for r, _ in progress])
    for name in ("frames", "steps", "seconds", "generations"):
        expected = [getattr(totals, name) for _, totals in progress]
        assert numbers(found, f"total/{name}") == pytest.approx(expected)
    evaluations = [sum(r.evaluations for r, _ in progress[: n + 1]) for n in steps]
    assert numbers(found, "total/evaluations") == evaluations
    seconds = numbers(found, "generation/seconds")
    assert sum(seconds) == pytest.approx(progress[-1][1].seconds, rel=1e-4)
    speeds = [r.frames / s for (r, _), s in zip(progress, seconds, strict=True)]
    assert numbers(found, "generation/frames_per_second") == pytest.approx(speeds, rel=1e-4)
    assert [step for step, _ in found["fitness"]] == steps
    for values, (_, buckets) in zip(fitness, found["fitness"], strict=True):
        assert buckets[:, 2].sum() == len(values)
        assert (buckets[:, 0].min(), buckets[:, 1].max()) == pytest.approx(
            (min(values), max(values)), abs=0.51
        )
    return found


def test_a_run_has_its_curves_histograms_and_films(germline, spec, plain, tmp_path):
    folder = tmp_path / "run"
    ok(germline("train", spec, "--out", folder, "--tensorboard", "--film-every", 2))
    assert digest(folder) == digest(plain)  # whoever looks on changes nothing
    found = check_whole(folder)
    assert [step for step, _ in found["champion"]] == [0, 2, 4]
    for step, (width, height, data) in found["champion"]:
        assert (width, height) == (b"160", b"%d" % (210 + films.HEIGHT))
        pictures = list(imageio.get_reader(io.BytesIO(data), ".gif"))
        assert {p.shape[:2] for p in pictures} == {(210 + films.HEIGHT, 160)}
        assert len(pictures) == 9
        with Store.open(folder) as store:
            champion = store.reports()[step].champion
        out = tmp_path / f"{step}.gif"
        ok(germline("play", f"{folder}:{champion}", "--out", out))
        assert data == out.read_bytes()


def test_nothing_is_written_twice_and_what_was_missed_is_caught_up(germline, spec, tmp_path):
    folder = tmp_path / "run"
    some = ("--set", "stop.generations=2")
    ok(germline("train", spec, "--out", folder, "--tensorboard", "--film-every", 1, *some))
    first = sorted((folder / "tensorboard").iterdir())
    ok(germline("resume", folder, "--tensorboard", "--film-every", 1))
    assert sorted((folder / "tensorboard").iterdir()) == first  # there was nothing to add
    ok(germline("resume", folder, "--set", "stop.generations=3"))
    assert len(read(folder)["score/best"]) == 2
    more = ("--set", "stop.generations=5")
    ok(germline("resume", folder, "--tensorboard", "--film-every", 1, *more))
    found = check_whole(folder)
    assert [step for step, _ in found["champion"]] == [0, 1, 3, 4]
    names = sorted(path.name for path in (folder / "tensorboard").iterdir())
    assert len(set(names)) == 2


@pytest.mark.parametrize("cut", [1, 5, 200])
def test_a_record_that_was_cut_off_is_written_again(cut, germline, spec, plain, tmp_path):
    folder = shutil.copytree(plain, tmp_path / "run")
    ok(germline("resume", folder, "--tensorboard"))
    (path,) = (folder / "tensorboard").iterdir()
    path.write_bytes(path.read_bytes()[:-cut])
    ok(germline("resume", folder, "--tensorboard"))
    assert len(list((folder / "tensorboard").iterdir())) == 2
    check_whole(folder)


def test_a_generation_that_is_played_again_after_a_kill_is_not_written_again(
    germline, spec, plain, tmp_path
):
    folder = tmp_path / "run"
    some = ("--set", "stop.generations=2")
    ok(germline("train", spec, "--out", folder, *some))
    whole = shutil.copytree(plain, tmp_path / "whole")
    ok(germline("resume", whole, "--tensorboard"))
    shutil.copytree(whole / "tensorboard", folder / "tensorboard")  # ahead of the store
    ok(germline("resume", folder, "--tensorboard", "--set", "stop.generations=5"))
    assert len(list((folder / "tensorboard").iterdir())) == 1
    assert [step for step, _ in read(folder)["score/best"]] == [0, 1, 2, 3, 4]


def test_films_take_no_time_of_the_run(germline, tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("germline.run.session.time.monotonic", lambda: clock[0])

    def film(self, champion):
        from tensorboard.compat.proto.summary_pb2 import Summary

        clock[0] += 1000.0
        return Summary()

    monkeypatch.setattr(board.Board, "_film", film)
    spec = write(tmp_path / "spec.toml", CARTPOLE | {"stop": {"generations": 3}})
    folder = tmp_path / "run"
    ok(germline("train", spec, "--out", folder, "--tensorboard", "--film-every", 1))
    assert clock[0] == 3000.0
    with Store.open(folder) as store:
        assert [totals.seconds for _, totals in store.progress()] == [0.0, 0.0, 0.0]


def test_a_run_outlives_its_films(germline, tmp_path, monkeypatch):
    def broken(*_, **__):
        raise board.InputError("pictures: there is no screen")

    monkeypatch.setattr("germline.run.score.watch", broken)
    spec = write(tmp_path / "spec.toml", CARTPOLE | {"stop": {"generations": 2}})
    given = ("--tensorboard", "--film-every", 1)
    code, _, err = germline("train", spec, "--out", tmp_path / "run", *given)
    assert code == 0
    assert err == "germline: --film-every: no more films: pictures: there is no screen\n"
    assert "champion" not in check_whole(tmp_path / "run")


def test_es_has_its_centre_rank_and_adapted_cap(germline, tmp_path):
    changes = CARTPOLE | {"stop": {"generations": 3}, "algorithm.adaptive_cap": True}
    spec = write(tmp_path / "spec.toml", changes, "es")
    ok(germline("train", spec, "--out", tmp_path / "run", "--tensorboard"))
    found = check_whole(tmp_path / "run")
    assert [step for step, _ in found["generation/rank"]] == [0, 1, 2]
    assert [step for step, _ in found["generation/cap"]] == [1, 2]  # the first has none
    assert "champion" not in found


@pytest.mark.parametrize("command", ["train", "resume", "reproduce"])
def test_without_the_extra_one_sentence_says_what_adds_it(
    command, germline, spec, plain, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(board, "find_spec", lambda name: None)
    what = {"train": spec, "resume": plain, "reproduce": "frostbite"}[command]
    said = refused(germline(command, what, "--tensorboard"))
    assert said == (
        "--tensorboard: tensorboard is not here, add it with: pip install 'germline[tensorboard]'"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["spec.toml"]
