import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from germline import blobs
from germline.errors import InputError
from germline.genome import Birth, Gene, Genome, Snapshot
from germline.messages import Evaluation, Failure, Key, Request, Sums
from germline.run import database
from germline.run.store import Store
from runs import ALGORITHMS, begin, digest, go_on, golden_store, run, small
from samples import PLAIN, policy_for, seeds

POLICY = policy_for(PLAIN)
EGG = Genome(POLICY, Birth(1))
OLD = "9779a1e99b4aac94670767e3d04e1bff0c69672b830e1b83b0dc4785fa636b93"


@pytest.fixture
def store(tmp_path):
    """An empty store, open for writing."""
    with Store.create(tmp_path, POLICY, "run", b"") as made:
        yield made


def answered(genome, generation=0, number=0, phase=0, **fields):
    """A request and its answer."""
    key = Key("run", generation, phase, number)
    values = {"returns": (1.0,), "steps": (2,), "frames": (3,)} | fields
    return Request(key, genome, (5,)), Evaluation(key, **values)


def failed(genome, number=0, reason="it broke", attempts=1):
    key = Key("run", 0, 0, number)
    return Request(key, genome, (5,)), Failure(key, reason, attempts)


FULL = {
    "returns": (0.1, -0.0, 1e300),
    "steps": (0, 7, 2**32 - 1),
    "frames": (4, 5, 2**32 - 1),
    "ends": "tlc",
    "behaviour": (0.5, -1.25),
    "observation_sums": Sums(7, (1.0, 0.1), (3.0, 4.0)),
    "seconds": 0.25,
    "worker": "worker-1",
}


def test_results_are_read_as_they_were_written(store):
    mutant = EGG.child(Gene(3, -0.25, "sparse:0.5"))
    given = [
        answered(EGG),
        answered(mutant, number=2, **FULL),
        failed(EGG, number=3, reason="its returns are [nan]", attempts=5),
        answered(EGG.child(Gene(4, 0.5)), number=10, worker="worker-2"),
    ]
    later = [answered(EGG, phase=1), answered(EGG, generation=1)]
    store.add(given)
    store.add(later)
    assert store.results(0, 0) == [result for _, result in given]
    assert store.results(0, 1) == [later[0][1]]
    assert store.results(1, 0) == [later[1][1]]
    assert store.results(1, 1) == []
    assert store.count() == (3, 6)
    with Store.open(store.folder) as reader:
        assert reader.results(0, 0) == store.results(0, 0)
        assert reader.run == "run"
        assert reader.policy == POLICY


def test_a_later_answer_to_a_request_replaces_an_earlier_one(store):
    """A worker whose answers were believed may turn out to be wrong."""
    store.add([answered(EGG, returns=(2.0,))])
    before = store.digest()
    store.add([failed(EGG), answered(EGG, number=1)])
    store.add([answered(EGG, returns=(2.0,))])
    assert [r.returns for r in store.results(0, 0)] == [(2.0,), (1.0,)]
    store._db.execute("DELETE FROM evaluations WHERE number = 1")
    assert store.digest() == before


def test_arrivals_are_given_in_their_order(store, monkeypatch):
    monkeypatch.setattr("germline.run.reader.PAGE", 2)
    mutant = EGG.child(Gene(3, -0.25))
    given = [
        answered(mutant, generation=1, number=7, **FULL),
        failed(EGG, number=3),
        answered(EGG, phase=1),
        answered(EGG, number=2),
        answered(EGG, number=1),
    ]
    store.add(given[:1], 0)
    store.add(given[1:], 1)
    wanted = [(request.genome.id, result) for request, result in given]
    for after in range(6):
        assert list(store.arrivals(after)) == wanted[after:]
    with Store.open(store.folder) as reader:
        assert list(reader.arrivals()) == wanted
    store.forget_arrivals(3)
    assert list(store.arrivals()) == wanted[:3]
    assert store.count()[1] == 3


def test_a_log_of_arrivals_with_a_gap_is_damaged(store):
    store.add([answered(EGG, number=n) for n in range(3)], 0)
    store._db.execute("DELETE FROM evaluations WHERE arrival = 1")
    with pytest.raises(InputError, match="is damaged: ValueError: arrival 1 is missing"):
        list(store.arrivals())


def test_where_the_order_does_not_matter_there_are_no_arrivals(store):
    store.add([answered(EGG)])
    assert list(store.arrivals()) == []


def test_all_or_nothing_is_kept(store):
    def fail_halfway():
        with store.transaction():
            store._db.execute("INSERT INTO sessions VALUES (1, 0.0, x'80')")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    assert store.sessions() == []
    store.session({"kind": "here"})
    assert store.sessions() == [{"kind": "here"}]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_any_individual_can_be_rebuilt_from_its_id(algorithm, tmp_path):
    run(tmp_path / "run", small(algorithm=algorithm))
    with Store.open(tmp_path / "run") as kept:
        names = [f"{n & (2**64 - 1):016x}" for (n,) in kept._all("SELECT id FROM individuals")]
        found = [kept.genome(name) for name in names]
        reports = kept.reports()
    assert [genome.id for genome in found] == names
    assert {report.champion for report in reports} <= set(names)
    longest = {"ga": 2, "es": 1, "random-search": 0}[algorithm]
    assert max(len(genome.genes) for genome in found) == longest
    roots = {type(genome.root) for genome in found}
    assert roots == ({Birth, Snapshot} if algorithm == "es" else {Birth})


@given(st.lists(st.tuples(seeds, st.sampled_from(["gaussian", "block:row", "lowrank:3"]))), seeds)
def test_any_lineage_can_be_rebuilt(genes, birth):
    genome = Genome(POLICY, Birth(birth))
    family = [
        genome := genome.child(Gene(seed, -0.3, op)) for seed, op in [(1, "gaussian"), *genes]
    ]
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.create(Path(folder), POLICY, "run", b"") as store,
    ):
        store.add([answered(Genome(POLICY, Birth(birth)), number=2**20)])
        store.add([answered(g, number=i) for i, g in enumerate(family)])
        assert store.genome(genome.id).canonical == genome.canonical


def test_a_snapshot_is_a_root_like_any_other(store):
    blob = blobs.pack(np.ones(PLAIN.size, np.float32))
    root = Genome(POLICY, Snapshot(blobs.sha256(blob)))
    child = root.child(Gene(1, 0.5))
    store.add([answered(root), answered(child, number=1)])
    assert store.genome(child.id) == child
    assert store.genome(root.id).root == root.root


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("0" * 16, "no individual has the id 0000000000000000"),
        ("x" * 16, "'xxxxxxxxxxxxxxxx' is not the id of an individual: 16 hex digits"),
        ("é", "is not the id of an individual"),
        ("", "is not the id of an individual"),
        ("ff", "is not the id of an individual"),
        ("7" * 32, "is not the id of an individual"),
    ],
)
def test_an_unknown_id_is_refused(name, words, store):
    store.add([answered(EGG)])
    with pytest.raises(InputError, match=words):
        store.genome(name)


def digest_of(folder, *batches):
    folder.mkdir()
    with Store.create(folder, POLICY, "run", b"") as store:
        for batch in batches:
            store.add(batch)
        return store.digest()


CHILD = EGG.child(Gene(1, 0.5))


@pytest.mark.parametrize(
    "other",
    [
        answered(Genome(POLICY, Birth(2)).child(Gene(1, 0.5)), number=1),
        answered(EGG.child(Gene(2, 0.5)), number=1),
        answered(EGG.child(Gene(1, -0.5)), number=1),
        answered(EGG.child(Gene(1, 0.5 + 2**-8)), number=1),
        answered(EGG.child(Gene(1, 0.5, "lowrank:1")), number=1),
        answered(CHILD, number=1, returns=(float(np.nextafter(1.0, 2.0)),)),
        answered(CHILD, number=1, returns=(1.0, 1.0), steps=(2, 2), frames=(3, 3)),
        answered(CHILD, number=1, steps=(3,)),
        answered(CHILD, number=1, frames=(4,)),
        answered(CHILD, number=2),
        answered(CHILD, number=1, phase=1),
        answered(CHILD, number=1, generation=1),
        failed(CHILD, number=1),
    ],
    ids=[
        *("parent", "seed", "sign", "sigma", "operator", "bit", "episodes", "steps", "frames"),
        *("number", "phase", "generation", "failure"),
    ],
)
def test_the_digest_tells_any_difference(other, tmp_path):
    one = digest_of(tmp_path / "one", [answered(EGG), answered(CHILD, number=1)])
    assert digest_of(tmp_path / "two", [answered(EGG), other]) != one


@pytest.mark.parametrize("column", ["parent", "seed", "sigma", "operator"])
def test_the_digest_reads_genes_from_the_table(column, store):
    store.add([answered(EGG), answered(CHILD, number=1)])
    before = store.digest()
    store._db.execute(f"UPDATE individuals SET {column} = {column} + 1 WHERE parent IS NOT NULL")
    assert store.digest() != before


def test_the_digest_does_not_depend_on_how_results_came_in(tmp_path):
    family = [EGG, CHILD, *(EGG.child(Gene(s, 0.5, "block:row")) for s in range(20))]
    first = [answered(g, number=i) for i, g in enumerate(family)]
    again = [
        answered(g, number=i, worker=f"w{i}", seconds=float(i), behaviour=(1.0,), ends="t")
        for i, g in enumerate(family)
    ]
    random.Random(1).shuffle(again)
    found = digest_of(tmp_path / "two", again[:7], again[7:])
    assert found == digest_of(tmp_path / "one", first)


def test_many_read_while_one_writes(store):
    with Store.open(store.folder) as reader, Store.open(store.folder) as other:
        for number in range(3):
            store.add([answered(EGG, number=number)])
            assert reader.count() == other.count() == (1, number + 1)
        with store.transaction():
            store._db.execute("DELETE FROM evaluations")
            assert reader.count() == (1, 3)
        assert reader.count() == (1, 0)


def test_a_reader_cannot_write(store):
    with (
        Store.open(store.folder) as reader,
        pytest.raises(InputError, match="cannot be written: attempt to write a readonly database"),
    ):
        reader.session({})


HOLD = """
import sys
from pathlib import Path
from germline.run.store import Store
with Store.open(Path(sys.argv[1]), write=True) as store:
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_run_in_use_is_refused_until_its_process_is_gone(tmp_path):
    folder = begin(tmp_path / "run", small())
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(InputError, match=f"{folder}: is in use by another process"):
            go_on(folder)
        assert digest(folder)
        holder.send_signal(signal.SIGKILL)
    assert go_on(folder).reason == "generations 3 of 3"
    assert digest(folder) == OLD


def test_a_run_is_not_begun_where_one_is(store):
    for _ in range(2):
        with pytest.raises(InputError, match="holds a run already"):
            Store.create(store.folder, POLICY, "other", b"")
        store.close()
    with pytest.raises(InputError, match="holds a run already; go on with it by germline resume"):
        Store.create(store.folder, POLICY, "other", b"")
    with Store.open(store.folder, write=True) as again:
        assert again.run == "run"


# Creates a run in a folder and is killed at a line of the program, the first, second or later one.
KILLED = """
import os, signal, sys
from pathlib import Path
from germline.genome import PolicyRef
from germline.run.store import Store

FILES = ("run/store.py", "run/connection.py", "run/database.py")

def create(folder):
    Store.create(folder, PolicyRef("mlp", "0" * 64), "run", b"seed = 1").close()

def killed(folder, line):
    left = [line]
    def trace(frame, event, argument):
        if frame.f_code.co_filename.endswith(FILES):
            left[0] -= event == "line"
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace
    if not (child := os.fork()):
        sys.settrace(trace)
        create(folder)
        os._exit(0)
    return os.waitpid(child, 0)[1] == signal.SIGKILL

def state(folder):
    return " ".join(sorted(path.name for path in folder.iterdir()))

line, again = 1, True
while again:
    folder = Path(sys.argv[1], str(line))
    folder.mkdir()
    again = killed(folder, line)
    print(state(folder))
    if not (folder / "run.db").exists():
        killed(folder, line)
    if not (folder / "run.db").exists():
        create(folder)
    with Store.open(folder, write=True) as store:
        assert (store.run, store.policy.name) == ("run", "mlp")
    assert (folder / "spec.toml").read_bytes() == b"seed = 1"
    assert state(folder) == "lock run.db spec.toml", state(folder)
    line += 1
"""


def test_a_creation_that_is_killed_leaves_no_run_or_a_whole_one(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    drafts = f"{database.STORE_DRAFT} {database.SPEC_DRAFT} lock"
    named = f"{database.STORE_DRAFT} lock spec.toml"
    states = set(done.stdout.splitlines())
    assert {"", "lock", drafts, named, "lock run.db spec.toml"} <= states


@pytest.mark.parametrize("left", [(), ("spec",), ("spec", "store")])
def test_a_spec_of_somebody_is_never_replaced(left, tmp_path):
    """Whatever a creation that was killed has left beside it."""
    drafts = {"spec": database.SPEC_DRAFT, "store": database.STORE_DRAFT}
    for name in left:
        (tmp_path / drafts[name]).write_text("half")
    (tmp_path / "spec.toml").write_text("mine")
    with pytest.raises(InputError, match=r"has a spec\.toml that a run would replace"):
        Store.create(tmp_path, POLICY, "run", b"")
    assert (tmp_path / "spec.toml").read_text() == "mine"
    assert not (tmp_path / "lock").exists()


def test_other_files_stay_where_a_run_is_begun(tmp_path):
    (tmp_path / "notes").write_text("mine")
    (tmp_path / database.STORE_DRAFT).write_text("half")
    (tmp_path / "run.db-wal").write_text("of a store that is gone")
    with Store.create(tmp_path, POLICY, "run", b"") as store:
        assert store.run == "run"
    assert {p.name for p in tmp_path.iterdir()} == {"lock", "notes", "run.db", "spec.toml"}


def test_network_file_systems_are_refused_to_writers(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    run(folder, small())
    monkeypatch.setattr(database, "filesystem", lambda folder: "nfs4")
    for attempt in (lambda: go_on(folder), lambda: begin(tmp_path / "other", small())):
        with pytest.raises(InputError, match=r"is on a network file system \(nfs4\).*--out"):
            attempt()
    assert digest(folder) == OLD
    assert not (tmp_path / "other" / "run.db").exists()


def test_file_systems_are_known_by_name(tmp_path):
    assert database.filesystem(tmp_path) not in ("", *database.NETWORK)
    assert database.filesystem(Path("/proc")) == "proc"


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize(("version", "words"), [(4, "newer than"), (0, "not one of")])
def test_a_store_of_another_program_is_refused(version, words, write, store):
    store.close()
    with closing(sqlite3.connect(store.folder / "run.db")) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    before = (store.folder / "run.db").read_bytes()
    with pytest.raises(InputError, match=f"run.db: has version {version}, {words}"):
        Store.open(store.folder, write=write)
    assert (store.folder / "run.db").read_bytes() == before


def test_an_old_store_is_read_as_it_is(tmp_path):
    folder = golden_store(tmp_path)
    before = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
    with Store.open(folder) as old:
        assert old.digest() == OLD
        assert old.count() == (18, 24)
        assert old.totals().generations == len(old.reports()) == 3
        assert all(old.genome(report.champion).id == report.champion for report in old.reports())
        assert {result.ends for result in old.results(0, 0)} == {""}
    after = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
    assert after == before


def test_an_old_store_is_backed_up_migrated_and_gone_on_with(tmp_path):
    folder = golden_store(tmp_path)
    with closing(sqlite3.connect(folder / "run.db")) as connection:
        old = list(connection.iterdump())
    assert go_on(folder, {"stop.generations": 5}).generation == 5
    with closing(sqlite3.connect(folder / "run.db.version-1")) as backup:
        assert list(backup.iterdump()) == old
        assert backup.execute("PRAGMA user_version").fetchone() == (1,)
    assert digest(folder) == run(tmp_path / "new", small({"stop.generations": 5}))
    with Store.open(folder, write=True) as migrated:
        assert {result.ends for result in migrated.results(4, 0)} == {"t"}


def test_a_migrated_store_is_not_migrated_again(tmp_path):
    folder = golden_store(tmp_path)
    Store.open(folder, write=True).close()
    (folder / "run.db.version-1").unlink()
    Store.open(folder, write=True).close()
    assert not (folder / "run.db.version-1").exists()
    assert digest(folder) == OLD


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize(
    "content", [b"", b"not a store" * 1000, "cut"], ids=["empty", "text", "cut"]
)
def test_a_file_that_is_no_store_is_one_clear_error(content, write, tmp_path):
    folder = golden_store(tmp_path)
    path = folder / "run.db"
    path.write_bytes(path.read_bytes()[:9000] if content == "cut" else content)
    with pytest.raises(InputError, match=rf"^{path}: ") as refused:
        Store.open(folder, write=write)
    assert "\n" not in str(refused.value)


def test_damage_that_is_found_later_is_one_clear_error(tmp_path):
    folder = tmp_path / "run"
    run(folder, small({"algorithm.population": 200, "stop.generations": 2}))
    with (folder / "run.db").open("r+b") as file:
        file.seek(4096 * 12)
        file.write(b"\xff" * 4096 * 4)
    with pytest.raises(InputError, match=str(folder)):
        digest(folder)


def test_a_folder_without_a_store_is_no_run(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError, match=f"{folder}: is not a run: it has no run.db"):
            Store.open(folder)


def test_a_missing_state_is_made_up_for(tmp_path):
    folder = tmp_path / "run"
    run(folder, small())
    shutil.rmtree(folder / "blobs")
    go_on(folder, {"stop.generations": 5})
    assert digest(folder) == run(tmp_path / "other", small({"stop.generations": 5}))


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB, and a function that makes it larger."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        reason = f"mounting is not permitted here: {mounted.stderr.decode().strip()}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    try:
        yield (
            folder,
            lambda: subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True),
        )
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_full_disk_begins_nothing(small_disk):
    disk, _ = small_disk
    for free in (0, 4096, 8192, 16384, 32768):
        room = 2**20 - free - sum(p.stat().st_blocks * 512 for p in disk.rglob("*"))
        with contextlib.suppress(OSError):
            (disk / "ballast").write_bytes(bytes(room))
        with pytest.raises(
            InputError, match=r"run: (a run cannot be kept here|cannot be made|No sp)"
        ):
            begin(disk / "run", small())
        assert [p.name for p in disk.iterdir()] == ["ballast"]
        (disk / "ballast").unlink()


def test_a_full_disk_loses_nothing_that_was_committed(small_disk, tmp_path):
    disk, enlarge = small_disk
    (disk / "ballast").write_bytes(bytes(2**19 + 2**18))
    spec = small({"algorithm.population": 700, "stop.generations": 2})
    folder = begin(disk / "run", spec)
    with pytest.raises(
        InputError, match=r"cannot be written: .*full.*what was committed is intact"
    ):
        go_on(folder)
    with Store.open(folder) as store:
        kept = store.count()
        assert 0 < kept[1] < 1400
        assert store._one("PRAGMA integrity_check") == "ok"
    enlarge()
    assert go_on(folder).reason == "generations 2 of 2"
    assert digest(folder) == run(tmp_path / "undisturbed", spec)
