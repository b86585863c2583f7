"""Films of individuals and of files that somebody sent, by real players."""

import io
import json
import os
import signal
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import runs
from engines import until
from germline import blobs, files, policies
from germline.api import Run
from germline.dashboard.films import pool, supervisor
from germline.dashboard.films.pictures import Pictures
from germline.dashboard.films.pool import Players
from germline.dashboard.library import Busy
from germline.decode import Decoder
from germline.errors import InputError
from germline.files import GenomeFile, TaskRef
from germline.genome import Birth, Foreign, Gene, Genome, Slices, Snapshot
from germline.run import recall, score
from germline.run.store import Store

CARTPOLE = TaskRef("gym", {"id": "CartPole-v1"})
ENDLESS = TaskRef("gym", {"id": "Pendulum-v1", "options": {"max_episode_steps": 10**6}})


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Where players would keep what is large, such as a table of noise."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def players(cache):
    # A player must outlive the thread in which the pool was made.
    with ThreadPoolExecutor(1) as elsewhere:
        made = elsewhere.submit(Players, 1, per_minute=10_000).result()
    with made:
        yield made


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    """A run, and its champion."""
    folder = tmp_path_factory.mktemp("cartpole") / "run"
    runs.run(folder, runs.small(runs.CARTPOLE | {"stop": {"generations": 2}}))
    return folder, Run(folder).champion.genome.id


@pytest.fixture(scope="module")
def by_es(tmp_path_factory):
    """A run by evolution strategies, and a child of its centre."""
    folder = tmp_path_factory.mktemp("es") / "run"
    runs.run(folder, runs.small(runs.CARTPOLE | {"stop": {"generations": 3}}, "es"))
    with Store.open(folder) as store:
        champion = store.reports()[-1].champion
    return folder, champion


def sent(task=CARTPOLE, policy="mlp", settings=None, **fields):
    """The bytes of a genome file."""
    spec = policies.make(policy, settings or {"inputs": 4, "hidden": [4], "outputs": 2})
    genome = Genome(policies.reference(policy, spec), Birth(5), (Gene(6, 0.5),))
    return files.to_json(GenomeFile(genome, task, **fields)).encode()


def endless():
    numbers = {"inputs": 3, "hidden": [4], "outputs": 1, "head": "continuous"}
    return sent(ENDLESS, settings=numbers)


def records(data):
    """The (header, picture) of each record."""
    found = []
    while data:
        text, picture = struct.unpack(">II", data[:8])
        found.append((json.loads(data[8 : 8 + text]), data[8 + text : 8 + text + picture]))
        data = data[8 + text + picture :]
    return found


def watched(reader):
    return records(b"".join(reader))


def first_shot(reader):
    """Read until there is a picture."""
    data = b""
    for part in reader:
        data += part
        if any(header["kind"] == "shot" for header, _ in records(data)):
            return
    pytest.fail(f"there was no picture: {records(data)}")


def detail(reader):
    """What the only record says went wrong."""
    ((header, picture),) = watched(reader)
    assert (header["kind"], picture) == ("error", b"")
    return header["detail"]


def pixels(picture):
    return np.asarray(Image.open(io.BytesIO(picture)).convert("RGB"))


def test_a_film_is_the_same_play_as_watch(players, cartpole):
    folder, name = cartpole
    (about, _), *shots, (end, _) = watched(players.film(folder, name, seed=3))
    file = recall.recall(folder, name)
    expected = score.watch(file, lambda shot: None, drawn=False, seed=3)
    theta = Decoder(policies.layout_of(file.genome.policy)).decode(file.genome)
    assert about == {
        "kind": "about",
        "id": name,
        "policy": "mlp",
        "task": "CartPole-v1",
        "genes": len(file.genome.genes),
        "arithmetic": "float32",
        "seed": 3,
        "digest": blobs.weights_hash(theta),
        "weights": 30,
    }
    steps = expected.steps[0]
    assert end == {"kind": "end", "score": expected.mean, "steps": steps, "cut": None}
    assert [header["step"] for header, _ in shots] == list(range(steps + 1))
    assert [header["end"] for header, _ in shots] == [""] * steps + ["t"]
    assert {header["pace"] for header, _ in shots} == {50}
    first, last = pixels(shots[0][1]), pixels(shots[-1][1])
    assert first.shape == last.shape == (320, 480, 3)
    assert (first != last).any()


def test_an_individual_of_an_evolution_strategy_plays(players, by_es):
    folder, name = by_es
    file = recall.recall(folder, name)
    assert isinstance(file.genome.root, Snapshot)
    (about, _), *_, (end, _) = watched(players.film(folder, name))
    assert about["digest"] == players.weights(folder, name)[0]
    assert end["score"] == score.watch(file, lambda shot: None, drawn=False).mean


def test_the_weights_are_those_of_the_definition(players, cartpole):
    folder, name = cartpole
    file = recall.recall(folder, name)
    theta = Decoder(policies.layout_of(file.genome.policy)).decode(file.genome)
    digest, count, seconds = players.weights(folder, name)
    assert (digest, count) == (blobs.weights_hash(theta), 30)
    assert seconds > 0


@pytest.mark.parametrize(("run", "ending"), [("cartpole", ".json"), ("by_es", ".safetensors")])
def test_a_genome_is_the_file_that_is_written(players, run, ending, request, tmp_path):
    folder, name = request.getfixturevalue(run)
    files.write(tmp_path / "genome", recall.recall(folder, name))
    assert players.genome(folder, name) == ((tmp_path / "genome").read_bytes(), ending)


def test_nobody_of_this_name(players, cartpole):
    folder, _ = cartpole
    said = detail(players.film(folder, "f" * 16))
    assert "f" * 16 in said
    assert str(folder) not in said
    with pytest.raises(InputError, match="f" * 16):
        players.weights(folder, "f" * 16)


def test_a_run_that_imports_code_is_not_played(players, tmp_path):
    folder = runs.begin(tmp_path / "run", runs.small())
    runs.go_on(folder, {"stop.generations": 1})
    assert "imports: games is code" in detail(
        players.film(folder, Run(folder).reports[-1].champion)
    )


def test_a_film_that_nobody_watches_any_more_is_ended(players):
    (before,) = players.pids
    reader = players.film_of_file(endless())
    first_shot(reader)
    reader.close()
    *_, (end, _) = watched(players.film_of_file(sent()))
    assert end["kind"] == "end"
    assert players.pids == [before]


def test_a_film_that_is_forgotten_is_ended(players):
    (before,) = players.pids
    first_shot(players.film_of_file(endless()))
    assert watched(players.film_of_file(sent()))[-1][0]["kind"] == "end"
    assert players.pids == [before]


def test_a_player_that_is_killed_is_replaced(players):
    (before,) = players.pids
    reader = players.film_of_file(endless())
    first_shot(reader)
    os.kill(before, signal.SIGKILL)
    header, _ = records(b"".join(reader))[-1]
    assert header["kind"] == "error"
    assert "another takes its place" in header["detail"]
    *_, (end, _) = watched(players.film_of_file(sent()))
    assert end["kind"] == "end"
    assert players.pids != [before]


def test_a_film_that_takes_too_long_is_cut(players, monkeypatch):
    monkeypatch.setattr(players, "wall", 0.0)
    end, _ = watched(players.film_of_file(endless()))[-1]
    assert end["kind"] == "end"
    assert "it took 0 s" in end["cut"]


def test_a_player_that_does_not_stop_is_killed(players, monkeypatch):
    (before,) = players.pids
    monkeypatch.setattr(players, "wall", 0.0)
    monkeypatch.setattr(supervisor, "GRACE", 0.0)
    os.kill(before, signal.SIGSTOP)
    assert "so it was ended" in detail(players.film_of_file(endless()))
    monkeypatch.undo()
    assert watched(players.film_of_file(sent()))[-1][0]["kind"] == "end"
    assert players.pids != [before]


def test_a_film_of_few_pictures_says_that_it_is_cut(players):
    _, *shots, (end, _) = watched(players.film_of_file(sent(), pictures=3))
    assert [header["step"] for header, _ in shots] == [0, 1, 2]
    assert (end["steps"], end["score"]) == (2, 2.0)
    assert "3 pictures" in end["cut"]


def test_films_of_runs_are_kept(players, cartpole, monkeypatch):
    folder, name = cartpole
    films_of = [b"".join(players.film(folder, name, seed, run="one")) for seed in (0, 1)]
    b"".join(players.film_of_file(sent()))
    monkeypatch.setattr(players, "most", 0)  # nothing is played from here on
    assert [b"".join(players.film(folder, name, seed, run="one")) for seed in (0, 1)] == films_of
    with pytest.raises(Busy):
        players.film(folder, name, run="another")
    with pytest.raises(Busy):
        players.film(folder, name)
    with pytest.raises(Busy):
        players.film_of_file(sent())


def test_the_film_that_was_not_watched_for_longest_makes_room(players, cartpole, monkeypatch):
    folder, name = cartpole
    sizes = [len(b"".join(players.film(folder, name, seed, run="two"))) for seed in (0, 1)]
    b"".join(players.film(folder, name, 0, run="two"))
    monkeypatch.setattr(pool, "KEPT", sum(sizes))
    b"".join(players.film(folder, name, 2, run="two"))
    monkeypatch.setattr(players, "most", 0)
    with pytest.raises(Busy):
        players.film(folder, name, 1, run="two")
    b"".join(players.film(folder, name, 2, run="two"))


def held(players):
    """The bytes of all films that are kept or watched."""
    return sum(reel.size for reel in players._reels)


def test_films_that_are_left_standing_make_room_and_none_stays_after_its_reader(
    players, monkeypatch
):
    standing = players.film_of_file(sent())
    until(lambda: standing._reel.done, "the film is made")
    monkeypatch.setattr(pool, "HELD", held(players) - 1)
    with pytest.raises(Busy, match="nobody has watched to the end"):
        players.film_of_file(sent())
    monkeypatch.setattr(pool, "IDLE", 0.0)
    again = b"".join(players.film_of_file(sent()))
    assert b"".join(standing) == b""
    # What was read is gone with its reader, though nothing else is asked.
    until(lambda: not [reel for reel in players._reels if reel.size == len(again)], "it is gone")


def test_so_many_files_may_be_played_or_wait(players):
    readers = [players.film_of_file(endless()) for _ in range(pool.FILES)]
    with pytest.raises(Busy, match="2 files are being played or wait"):
        players.film_of_file(b"")
    for reader in readers:
        reader.close()
    until(lambda: players._files == 0, "both are done")
    for _ in range(pool.FILES):
        assert detail(players.film_of_file(b"")).startswith("the file: ")
    until(lambda: players._files == 0, "both are done")


def test_so_many_may_wait(cartpole):
    with Players(1, waiting=2) as players:
        readers = [players.film(*cartpole, seed=seed) for seed in range(3)]
        with pytest.raises(
            Busy, match="3 films and files are being made or wait; ask again in 5 s"
        ):
            players.film(*cartpole, seed=3)
    assert [detail(reader) for reader in readers] == ["the dashboard was closed"] * 3


def test_so_many_requests_a_minute():
    with Players(1, per_minute=1) as players:
        players.film_of_file(b"")
        with pytest.raises(Busy, match="more than 1 films and files a minute") as caught:
            players.film_of_file(b"")
        assert 1 <= caught.value.seconds <= 60


def test_another_player_is_started_when_all_are_busy(cartpole):
    with Players(2) as players:
        reader = players.film_of_file(endless())
        first_shot(reader)
        (busy,) = players.pids
        os.kill(busy, signal.SIGSTOP)  # it is in the middle of its film until the end
        assert players.weights(*cartpole)[1] == 30
        assert len(players.pids) == 2


@pytest.mark.parametrize(
    ("changes", "message"), [({"seed": 2**32}, "seed: "), ({"pictures": 20_001}, "pictures: ")]
)
def test_numbers_out_of_bounds(players, changes, message):
    with pytest.raises(InputError, match=message):
        players.film_of_file(sent(), **changes)


def test_a_file_that_was_sent_plays(players):
    data = sent()
    file = files.from_json(data)
    (about, _), *_, (end, _) = watched(players.film_of_file(data, seed=4))
    expected = score.watch(file, lambda shot: None, drawn=False, seed=4)
    assert (about["id"], about["genes"]) == (file.genome.id, 1)
    assert (end["score"], end["steps"]) == (expected.mean, expected.steps[0])


@pytest.mark.parametrize("data", [b"", b"\0" * 20, b"{", b"\x08\0\0\0\0\0\0\0{}", b"\x89PNG\r\n"])
def test_garbage_gives_one_sentence(players, data):
    said = detail(players.film_of_file(data))
    assert said.startswith("the file: ")
    assert "/" not in said
    assert said.isprintable()


SECRET = "there-is-such-a-file"


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (TaskRef("gym", {"id": "os:CartPole-v1"}), "names a module, and that is code"),
        (TaskRef("gym", {"id": "GymV21Environment-v0"}), "any environment of another package"),
        (TaskRef("gym", {"id": "NotThere-v0"}), "is not registered with Gymnasium"),
        (TaskRef("gym", {"id": "CartPole-v1", "options": {"render_mode": "human"}}), "render_mode"),
        (TaskRef("gym", {"id": "Ant-v5", "options": {"xml_file": "/etc/passwd"}}), "like a path"),
        (TaskRef("gym", {"id": "Ant-v5", "options": {"xml_file": "a.xml"}}), "like a path"),
        (TaskRef("gym", {"id": "Ant-v5", "options": {"xml_file": f".{SECRET}"}}), "a path"),
        (TaskRef("gym", {"id": "Ant-v5", "options": {"xml_file": "~"}}), "like a path"),
        (TaskRef("gym", {"id": "Ant-v5", "options": {"xml_file": SECRET}}), "not exist"),
        (TaskRef("gym", {"id": "CartPole-v1", "wrappers": ["RecordVideo"]}), "is not one of them"),
        (TaskRef("atari", {"game": "../pong"}), "characters that are not allowed"),
        (TaskRef("atari", {"game": "pong", "rom": "pong.bin"}), "is not one of its settings"),
        (TaskRef("functional", {"id": "os:CartPole-v1"}), "os:CartPole-v1"),
        (TaskRef("memorize", {"data": "/etc/passwd"}), "is not registered"),
        (TaskRef("memorize", {}), "the task shows"),
        (TaskRef("positive", {}), "is not registered"),
        (None, "task: "),
    ],
)
def test_a_file_reaches_for_nothing_on_this_machine(players, task, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(f".{SECRET}").write_text("secret")
    said = detail(players.film_of_file(sent(task)))
    assert message in said
    assert sys.prefix not in said


def test_a_task_that_cannot_be_looked_at_says_so(players):
    task = TaskRef("memorize", {"points": 8, "shape": [4], "classes": 2})
    header, _ = watched(players.film_of_file(sent(task)))[-1]
    assert header["kind"] == "error"
    assert "there is nothing to look at" in header["detail"]


def test_a_file_of_too_many_weights_is_refused(players):
    numbers = {"inputs": 4, "hidden": [6000, 6000], "outputs": 2}
    assert "weights; a film has" in detail(players.film_of_file(sent(settings=numbers)))


def test_a_policy_that_is_not_registered_is_refused(players):
    data = sent().replace(b'"name":"mlp"', b'"name":"os.system"')
    assert "the file: " in detail(players.film_of_file(data))


def test_a_file_does_not_make_a_table_of_a_gigabyte(players, cache):
    genome = files.from_json(sent()).genome
    root = Foreign("uber", Slices(0, ()), "0" * 64)
    file = GenomeFile(Genome(genome.policy, root), CARTPOLE)
    said = detail(players.film_of_file(files.to_json(file).encode()))
    assert "table of noise" in said
    assert not list(cache.rglob("noise*"))


def test_the_dashboards_side_does_not_import_jax():
    program = "import sys, germline.dashboard.films.pool; print('jax' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert found.stdout == b"False\n"


@pytest.mark.parametrize(("colours", "kind"), [(1, "PNG"), (256, "PNG"), (257, "JPEG")])
def test_pictures_of_few_colours_are_exact(colours, kind):
    numbers = np.arange(400 * 300) % colours
    picture = np.stack([numbers % 16, numbers // 16, 255 - numbers % 16], 1).astype(np.uint8)
    picture = picture.reshape(400, 300, 3)
    data = Pictures().encode(picture)
    assert Image.open(io.BytesIO(data)).format == kind
    if kind == "PNG":
        assert (pixels(data) == picture).all()


def test_a_picture_uses_its_own_palette():
    pictures = Pictures()
    for value in (7, 200, 7):
        picture = np.full((20, 30, 3), value, np.uint8)
        picture[0, 0] = value + 1
        assert (pixels(pictures.encode(picture)) == picture).all()


def test_large_pictures_are_scaled_down():
    assert pixels(Pictures().encode(np.zeros((1000, 500, 3), np.uint8))).shape == (480, 240, 3)


def test_what_is_no_picture():
    with pytest.raises(InputError, match=r"got \[4, 5\]"):
        Pictures().encode(np.zeros((4, 5), np.uint8))
