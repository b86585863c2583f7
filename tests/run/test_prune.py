import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from commands import content
from germline import api
from germline.errors import InputError
from germline.run import fork, prune, records
from germline.run import spec as specs
from germline.run.store import Store
from runs import ALGORITHMS, CARTPOLE, after, begin, digest, go_on, golden_store, small

LONG = 9
ASYNC = {"algorithm": {**ALGORITHMS["ga"], "name": "async-ga"}}
STATISTICS = CARTPOLE | {
    "policy": {"name": "mlp", "hidden": [4], "normalise": "observations"},
    "algorithm.cap": 20,
}
RUNS = {
    "ga": small({"algorithm.elites": 2, "algorithm.candidates": 3}),
    "ga without candidates": small({"algorithm.candidates": 0}),
    "random search": small(algorithm="random-search"),
    "es": small(algorithm="es"),
    "async": small(ASYNC),
    "statistics": small(STATISTICS),
    "asynchronous statistics": small(ASYNC | STATISTICS),
}


@pytest.fixture(scope="module", params=RUNS)
def stopped(request, tmp_path_factory):
    """A run that was stopped within its sixth generation or soon after; not to be changed."""
    folder = begin(tmp_path_factory.mktemp("stopped") / "run", RUNS[request.param])
    go_on(folder, {"stop.generations": 5})
    go_on(folder, {"stop.generations": LONG}, stopped=after(4))
    return folder


@pytest.fixture
def pruned(stopped, tmp_path):
    prune.prune(stopped, tmp_path / "pruned", trust=True)
    return tmp_path / "pruned"


def read(folder, query):
    with closing(sqlite3.connect(folder / "run.db")) as db:
        return db.execute(query).fetchall()


def played(folder, where=""):
    """Who did what, but for how long it took, in the order in which it counts."""
    columns = "generation, phase, number, individual, returns, steps, frames, behaviour, ends"
    return read(folder, f"SELECT arrival, {columns} FROM evaluations {where} ORDER BY 1, 2, 3, 4")


def mark(folder):
    with Store.open(folder) as store:
        return store.pruned


def since(folder):
    """What was played after the last generation that was finished when it was pruned."""
    arrived, generation = mark(folder).arrived, mark(folder).generation
    return f"generation >= {generation}" if arrived is None else f"arrival >= {arrived}"


def kept(folder):
    """The generations before which there is a state."""
    return {generation for (generation,) in read(folder, "SELECT generation FROM checkpoints")}


def genomes_kept(folder):
    """Everybody in a kept state."""
    algorithm = specs.resolve(specs.read(folder / "spec.toml"), trust=True).algorithm
    with Store.open(folder) as store:
        for generation in kept(folder):
            state = algorithm.decode(store.checkpoint(generation)[1], store.policy)
            yield from prune.genomes(state)


def test_it_goes_on_as_the_whole_run_does(stopped, pruned, tmp_path):
    where = f"WHERE {since(pruned)}"
    assert played(pruned, where) == played(stopped, where)
    whole = shutil.copytree(stopped, tmp_path / "whole")
    for folder in (whole, pruned):
        assert go_on(folder, {"stop.generations": LONG}).generation == LONG
    assert played(pruned, where) == played(whole, where)
    assert len(played(pruned, where)) > 6
    first = mark(pruned).generation
    born = f"SELECT * FROM individuals WHERE generation >= {first} ORDER BY id"
    assert read(pruned, born) == read(whole, born)
    reports = [api.Run(folder, trust=True).reports for folder in (whole, pruned)]
    assert len(reports[0]) == LONG
    assert reports[0] == reports[1]
    assert api.Run(whole).totals[:3] == api.Run(pruned).totals[:3]


def test_lineages_stay_and_nobody_else(stopped, pruned):
    parents = dict(read(stopped, "SELECT id, parent FROM individuals"))
    names = {genome.id for genome in genomes_kept(pruned)}
    names |= {report.champion for report in api.Run(stopped).reports}
    recent = read(stopped, f"SELECT individual FROM evaluations WHERE {since(pruned)}")
    waiting = [individual for (individual,) in recent] + [records.signed(name) for name in names]
    expected = set()
    while waiting:
        one = waiting.pop()
        if one is not None and one not in expected:
            expected.add(one)
            waiting.append(parents[one])
    there = {i for (i,) in read(pruned, "SELECT id FROM individuals")}
    assert there == expected < parents.keys()
    own = f"WHERE individual IN ({', '.join(map(str, there))})"
    assert played(pruned) == played(stopped, own)
    for table in ("sessions", "generations", "names"):
        assert read(pruned, f"SELECT * FROM {table}") == read(stopped, f"SELECT * FROM {table}")


def test_the_champion_can_be_played(stopped, pruned):
    whole, copy = (api.Run(folder, trust=True) for folder in (stopped, pruned))
    assert copy.champion == whole.champion
    go_on(pruned, {"stop.generations": 6})
    assert copy.champion.genome.id == copy.reports[-1].champion


def test_it_says_what_it_does_not_have(stopped, pruned, tmp_path):
    with pytest.raises(InputError, match=f"generations were finished, was {digest(stopped)}"):
        digest(pruned)
    lost = min({*range(1, LONG)} - kept(pruned))
    with pytest.raises(InputError, match="is pruned: what was played before generation "):
        fork.fork(pruned, lost, tmp_path / "fork", {}, trust=True)
    assert not (tmp_path / "fork").exists()
    shutil.rmtree(pruned / "blobs")
    before = played(pruned)
    with pytest.raises(InputError, match="take the run that it was pruned from"):
        go_on(pruned, {"stop.generations": LONG})
    assert played(pruned) == before


def test_a_fork_of_it_is_that_of_the_whole_run(stopped, pruned, tmp_path):
    for generation in kept(pruned):
        forks = [tmp_path / f"{name}-{generation}" for name in ("whole", "pruned")]
        for origin, folder in zip((stopped, pruned), forks, strict=True):
            fork.fork(origin, generation, folder, {"seed": 8}, trust=True)
            go_on(folder, {"stop.generations": LONG})
        where = f"WHERE {since(forks[1])}"
        assert played(forks[1], where) == played(forks[0], where)
        with pytest.raises(InputError, match="is pruned and has no digest"):
            digest(forks[1])
    fork.fork(pruned, 0, tmp_path / "anew", {}, trust=True)
    go_on(tmp_path / "anew", {"stop.generations": 2})
    assert digest(tmp_path / "anew")


def test_it_can_be_pruned_again(stopped, pruned, tmp_path):
    go_on(pruned, {"stop.generations": LONG})
    prune.prune(pruned, tmp_path / "again", trust=True)
    again = mark(tmp_path / "again")
    assert (again.generation, again.digest) == (LONG, digest(stopped))
    assert len(played(tmp_path / "again")) < len(played(pruned))
    for folder in (pruned, tmp_path / "again"):
        go_on(folder, {"stop.generations": LONG + 3})
    where = f"WHERE {since(tmp_path / 'again')}"
    assert played(tmp_path / "again", where) == played(pruned, where)
    assert api.Run(pruned).reports == api.Run(tmp_path / "again").reports


def test_a_run_at_work_is_read_and_left_alone(tmp_path):
    folder, taken = begin(tmp_path / "run", small()), []

    def take(report, totals):
        before = content(folder)
        prune.prune(folder, tmp_path / f"after-{report.generation}", trust=True)
        assert content(folder) == before
        taken.append(report.generation)

    go_on(folder, aside=take)
    assert taken == [0, 1, 2]
    for generation in taken:
        copy = tmp_path / f"after-{generation}"
        go_on(copy)
        assert api.Run(copy).reports == api.Run(folder).reports


def test_a_copy_is_one_small_file_and_its_states(tmp_path):
    folder = begin(tmp_path / "run", small({"stop.generations": 30, "algorithm.population": 200}))
    go_on(folder)
    found = prune.prune(folder, tmp_path / "pruned", trust=True)
    there = {path.name for path in (tmp_path / "pruned").iterdir()}
    assert there == {"spec.toml", "run.db", "blobs"}
    assert found.individuals[1] == 30 * 200
    assert found.individuals[0] < found.individuals[1] / 20
    assert found.bytes < (folder / "run.db").stat().st_size / 10


def test_a_store_of_an_older_version_can_be_pruned(tmp_path):
    old = golden_store(tmp_path)
    prune.prune(old, tmp_path / "pruned", trust=True)
    assert api.Run(tmp_path / "pruned").reports == api.Run(old).reports


def test_what_cannot_be_pruned_leaves_nothing(tmp_path):
    folder = begin(tmp_path / "run", small())
    with pytest.raises(InputError, match="cannot be pruned: no generation is finished"):
        prune.prune(folder, tmp_path / "pruned", trust=True)
    go_on(folder)
    (tmp_path / "empty").mkdir()
    for there in (tmp_path / "empty", folder / "spec.toml"):
        with pytest.raises(InputError, match="is there already; choose another folder with --out"):
            prune.prune(folder, there, trust=True)
    with pytest.raises(InputError, match=r"toml/pruned: cannot be written: "):
        prune.prune(folder, folder / "spec.toml" / "pruned", trust=True)
    with pytest.raises(InputError, match="imports"):
        prune.prune(folder, tmp_path / "pruned")
    damaged = Path(shutil.copytree(folder, tmp_path / "damaged"))
    with closing(sqlite3.connect(damaged / "run.db")) as db:
        db.execute("DROP TABLE sessions")
    with pytest.raises(InputError, match=r"damaged/run\.db: cannot be read: no such table"):
        prune.prune(damaged, tmp_path / "pruned", trust=True)
    assert {path.name for path in tmp_path.iterdir()} == {"run", "empty", "damaged"}
