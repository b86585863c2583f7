import msgspec
import pytest

from germline.backends import Serial
from germline.backends.protocols import WorkerStatus
from germline.errors import InputError
from germline.messages import Evaluation
from germline.run import loop, machine
from germline.run import spec as specs
from germline.run.store import Store
from runs import ALGORITHMS, FROSTBITE, after, begin, digest, go_on, run, small

LONG = 5


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Runs of some generations by name of their algorithm, made once; not to be changed."""
    made = {}

    def get(algorithm="ga"):
        if algorithm not in made:
            made[algorithm] = tmp_path_factory.mktemp("finished") / algorithm
            run(made[algorithm], small({"stop.generations": LONG}, algorithm))
        return made[algorithm]

    return get


def rows(folder, table, upto):
    """All that a store has of the first generations, but what depends on the clock."""
    with Store.open(folder) as store:
        results = [r for g in range(upto) for phase in (0, 1) for r in store.results(g, phase)]
        if table == "reports":
            return store.reports()[:upto]
    return [(r.key[1:], r.returns, r.steps, r.frames, r.ends) for r in results]


@pytest.mark.parametrize(
    ("rules", "reason", "generations"),
    [
        ({"generations": 2}, "generations 2 of 2", 2),
        ({"frames": 15}, "frames 20 of 15", 2),
        ({"score": 12}, "score 12 of 12", 2),
        ({"score": 99, "generations": 3, "hours": 100}, "generations 3 of 3", 3),
        ({"hours": 1e-9}, "hours ", 1),
        ({"cost": 1e-9}, "cost ", 0),
    ],
)
def test_the_first_rule_that_holds_ends_a_run_and_is_named(rules, reason, generations, tmp_path):
    begin(tmp_path / "run", small({"stop": rules, "backend.price": 1.0}))
    outcome = go_on(tmp_path / "run")
    assert outcome.reason.startswith(reason)
    assert outcome.generation == outcome.totals.generations == generations


def test_cost_is_price_by_workers_and_hours(tmp_path):
    begin(tmp_path / "run", small({"backend.price": 2.0}))
    totals = go_on(tmp_path / "run").totals
    assert totals.seconds > 0
    assert totals.cost == pytest.approx(2 * totals.seconds / 3600)
    later = go_on(tmp_path / "run", {"stop.generations": 4}).totals
    assert later.seconds > totals.seconds
    assert later.cost == pytest.approx(2 * later.seconds / 3600)


def test_resuming_a_finished_run_does_nothing(tmp_path):
    folder = begin(tmp_path / "run", small())
    told = []
    first = go_on(folder, listener=lambda report, totals: told.append(report.generation))
    before = digest(folder)
    again = go_on(folder, listener=lambda report, totals: told.append(report.generation))
    assert again == first
    assert told == [0, 1, 2]
    assert digest(folder) == before
    with Store.open(folder) as store:
        assert len(store.sessions()) == 1


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("count", [1, 3, 5, 7])
def test_a_run_stopped_again_and_again_is_that_in_one_go(algorithm, count, finished, tmp_path):
    folder = begin(tmp_path / "run", small({"stop.generations": LONG}, algorithm))
    sessions = 0
    while (outcome := go_on(folder, stopped=after(count + sessions))).reason is None:
        sessions += 1
        assert sessions < 99
    assert sessions
    assert outcome.generation == LONG
    assert digest(folder) == digest(finished(algorithm))
    assert rows(folder, "reports", LONG) == rows(finished(algorithm), "reports", LONG)


def test_resuming_evaluates_only_what_is_missing(tmp_path, monkeypatch):
    notes = tmp_path / "notes"
    monkeypatch.setenv("NOTES", str(notes))
    folder = begin(tmp_path / "run", small({"task.name": "noted", "algorithm.population": 20}))
    assert go_on(folder, stopped=after(3)).reason is None
    assert 0 < len(notes.read_text().splitlines()) < 20
    go_on(folder)
    assert len(notes.read_text().splitlines()) == 3 * (20 + 2 * 2)


@pytest.mark.parametrize("generation", range(LONG + 1))
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_fork_without_changes_goes_the_way_of_its_origin(
    algorithm, generation, finished, tmp_path
):
    origin, folder = finished(algorithm), tmp_path / "fork"
    loop.fork(origin, generation, folder, {}, trust=True)
    with Store.open(folder) as store, Store.open(origin) as old:
        assert store.run != old.run
        assert store.totals()[:3] == (
            generation,
            sum(r.frames for r in old.reports()[:generation]),
            sum(r.steps for r in old.reports()[:generation]),
        )
    assert rows(folder, "results", LONG) == rows(origin, "results", generation)
    go_on(folder)
    assert digest(folder) == digest(origin)


@pytest.mark.parametrize("algorithm", ["ga", "es"])
def test_a_fork_with_another_sigma_differs_from_there_on(algorithm, finished, tmp_path):
    origin, folder = finished(algorithm), tmp_path / "fork"
    spec = loop.fork(origin, 3, folder, {"algorithm.sigma": 4.0}, trust=True)
    assert spec.algorithm["sigma"] == 4.0
    go_on(folder)
    for table in ("reports", "results"):
        assert rows(folder, table, 3) == rows(origin, table, 3)
    reports = rows(folder, "reports", LONG)
    assert [r.sigma for r in reports] == [0.5] * 3 + [4.0] * 2
    assert digest(folder) != digest(origin)
    with Store.open(folder) as store:
        assert all(store.genome(r.champion).id == r.champion for r in reports)


def test_a_fork_with_another_seed_differs_from_there_on(finished, tmp_path):
    loop.fork(finished(), 3, tmp_path / "fork", {"seed": 8}, trust=True)
    go_on(tmp_path / "fork")
    assert rows(tmp_path / "fork", "results", 3) == rows(finished(), "results", 3)
    assert digest(tmp_path / "fork") != digest(finished())


@pytest.mark.parametrize(
    ("generation", "changes", "words"),
    [
        (1, {"policy.hidden": [4]}, "policy: a fork keeps the network"),
        (1, {"algorithm": ALGORITHMS["random-search"]}, "algorithm.name: a fork keeps the"),
        (1, {"algorithm.sigmma": 1.0}, "did you mean sigma"),
        (LONG + 1, {}, "--generation: 6 is not 0 to 5, those finished"),
        (-1, {}, "--generation: -1 is not 0 to 5"),
    ],
)
def test_a_fork_that_makes_no_sense_is_refused(generation, changes, words, finished, tmp_path):
    with pytest.raises(InputError, match=words):
        loop.fork(finished(), generation, tmp_path / "fork", changes, trust=True)
    assert list(tmp_path.iterdir()) == []


def test_a_fork_never_overwrites_a_run(finished, tmp_path):
    before = run(tmp_path / "other", small())
    with pytest.raises(InputError, match="holds a run already"):
        loop.fork(finished(), 1, tmp_path / "other", {}, trust=True)
    assert digest(tmp_path / "other") == before


@pytest.mark.parametrize("algorithm", ["ga", "es"])
@pytest.mark.parametrize(
    "content",
    [b"garbage", b"\x80", b"", b"\xc1"],
)
def test_without_a_readable_state_all_is_told_again(content, algorithm, finished, tmp_path):
    folder = begin(tmp_path / "run", small({"stop.generations": 3}, algorithm))
    go_on(folder)
    (state,) = (folder / "blobs").iterdir()
    state.write_bytes(content)
    reports = []
    outcome = go_on(
        folder, {"stop.generations": LONG}, listener=lambda report, totals: reports.append(report)
    )
    assert outcome.generation == LONG
    # What was told before is not told to the user again.
    assert [r.generation for r in reports] == [3, 4]
    assert digest(folder) == digest(finished(algorithm))


def test_a_fork_without_its_state_does_not_go_astray(finished, tmp_path):
    folder = tmp_path / "fork"
    loop.fork(finished(), 3, folder, {"algorithm.sigma": 4.0}, trust=True)
    for state in (folder / "blobs").iterdir():
        state.write_bytes(b"garbage")
    with pytest.raises(InputError, match="the spec or a kept state was changed since"):
        go_on(folder)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_generation_has_a_report_and_totals_add_up(algorithm, tmp_path):
    seen = []
    folder = begin(tmp_path / "run", small(algorithm=algorithm))
    outcome = go_on(folder, listener=lambda report, totals: seen.append((report, totals)))
    with Store.open(folder) as store:
        assert store.reports() == [report for report, _ in seen]
        assert store.totals() == outcome.totals == seen[-1][1]
        played = [store.results(g, phase) for g in range(3) for phase in (0, 1)]
        evaluations = [r for results in played for r in results]
        assert store.count()[1] == len(evaluations)
    reports = [report for report, _ in seen]
    assert [r.generation for r in reports] == [0, 1, 2]
    assert all(isinstance(r, Evaluation) for r in evaluations)
    # Candidates play more than one episode, and all of them count.
    for name in ("frames", "steps"):
        total = sum(sum(getattr(e, name)) for e in evaluations)
        assert sum(getattr(r, name) for r in reports) == total
        assert getattr(outcome.totals, name) == total
    assert outcome.totals.frames == (15 if algorithm == "es" else 30)
    assert sum(r.evaluations for r in reports) == len(evaluations)
    seconds = [totals.seconds for _, totals in seen]
    assert seconds == sorted(seconds)


def test_a_run_in_which_everybody_fails_says_why(tmp_path, monkeypatch):
    monkeypatch.delenv("NOTES", raising=False)
    folder = begin(tmp_path / "run", small({"task.name": "noted"}))
    with pytest.raises(
        InputError, match=r"generation 0: every individual failed: KeyError: 'NOTES'"
    ):
        go_on(folder)
    with Store.open(folder) as store:
        assert store.count() == (6, 6)
        assert store.reports() == []


def test_sessions_are_noted_with_what_they_worked(tmp_path):
    folder = begin(tmp_path / "run", small())
    go_on(folder)
    go_on(folder, {"stop.generations": 4})
    with Store.open(folder) as store:
        sessions = store.sessions()
    assert len(sessions) == 2
    assert sessions[0] == sessions[1]
    assert sessions[0]["backend"] == "serial"
    assert sessions[0]["kind"] == machine.kind(small().backend)
    assert {"germline", "jax", "numpy"} <= set(sessions[0]["versions"])


def warnings(folder, **changes):
    told = []
    go_on(folder, changes, warn=told.append)
    return told


def test_another_kind_of_machine_is_pointed_out(tmp_path, monkeypatch):
    folder = begin(tmp_path / "run", small())
    assert warnings(folder) == []
    assert warnings(folder) == []
    here = machine.kind(small().backend)
    monkeypatch.setattr(machine, "kind", lambda engine: "abacus")
    (told,) = warnings(folder)
    assert f"another kind of machine ({here}, here abacus)" in told


def test_integers_are_the_same_on_every_machine():
    begun, now = ({"kind": kind, "versions": {}} for kind in ("a", "b"))
    assert list(machine.differences([begun], now, "exact")) == []
    assert len(list(machine.differences([begun], now, "float32"))) == 1


def test_other_versions_are_pointed_out(tmp_path):
    folder = begin(tmp_path / "run", small())
    with Store.open(folder, write=True) as store:
        versions = {"germline": "0.0.1", "jax": "0.0.2", "odd": "1"}
        store.session(
            {"backend": "serial", "kind": machine.kind(small().backend), "versions": versions}
        )
    told = warnings(folder)
    assert any(text.startswith("this run was begun with jax 0.0.2, here is ") for text in told)
    assert any("begun with numpy none, here is" in text for text in told)
    assert "this run was begun with odd 1, here is none; results may differ" in told
    assert not any("germline" in text for text in told)


def test_a_folder_in_use_is_left_as_it_is(tmp_path):
    folder = begin(tmp_path / "run", small())
    with Store.open(folder, write=True):
        before = sorted(p.name for p in folder.iterdir())
        with pytest.raises(InputError, match="holds a run already"):
            begin(folder, small())
        assert sorted(p.name for p in folder.iterdir()) == before
    go_on(folder)


def test_a_phase_in_which_all_failed_is_evaluated_again(tmp_path, monkeypatch):
    import games

    def broken(policy, seed):
        raise OSError("the disk is not mounted")

    score = games.tasks.registry._registry["positive"].score
    monkeypatch.setattr(games.tasks.registry._registry["positive"], "score", broken)
    folder = begin(tmp_path / "run", small())
    with pytest.raises(
        InputError, match="every individual failed: OSError: the disk is not mounted"
    ):
        go_on(folder)
    monkeypatch.setattr(games.tasks.registry._registry["positive"], "score", score)
    go_on(folder)
    assert digest(folder) == run(tmp_path / "other", small())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_any_individual_that_ever_lived_can_be_recalled(algorithm, finished, tmp_path):
    from germline import files, policies
    from germline.decode import Decoder

    folder = finished(algorithm)
    with Store.open(folder) as store:
        names = {name for g in range(LONG) for name in store.evaluated(g, 0).values()}
        layout = policies.layout_of(store.policy)
    for name in sorted(names):
        found = loop.recall(folder, name, trust=True)
        assert found.genome.id == name
        files.write(tmp_path / name, found)
        again = files.read(tmp_path / name)
        Decoder(layout, again.snapshots()).decode(again.genome)


def test_a_fork_of_es_may_change_its_optimizer(finished, tmp_path):
    changes = {"algorithm.optimizer": "sgd"}
    loop.fork(finished("es"), 3, tmp_path / "fork", changes, trust=True)
    go_on(tmp_path / "fork")
    assert digest(tmp_path / "fork") != digest(finished("es"))


def test_a_fork_makes_up_for_lost_states(finished, tmp_path):
    import shutil

    origin = shutil.copytree(finished(), tmp_path / "origin")
    shutil.rmtree(origin / "blobs")
    loop.fork(origin, 3, tmp_path / "fork", {}, trust=True)
    go_on(tmp_path / "fork")
    assert digest(tmp_path / "fork") == digest(finished())


class Liar(Serial):
    """Two workers that take turns, one of which finds every score a little higher."""

    def __init__(self):
        super().__init__(trust=True)
        self.there, self.avoid = ["honest", "liar"], {}

    def submit(self, batch, avoid=""):
        super().submit(batch)
        self.avoid.update((request.key, avoid) for request in batch)

    def results(self, timeout):
        for event in super().results(timeout):
            self.there.reverse()
            name = next((n for n in self.there if n != self.avoid[event.key]), self.there[0])
            returns = tuple(r + (name == "liar") for r in event.returns)
            yield msgspec.structs.replace(event, worker=name, returns=returns)

    def workers(self):
        return [WorkerStatus(name, 0, 0) for name in self.there]

    def ban(self, host):
        self.there = [name for name in self.there if name != host]


def test_an_audit_finds_who_is_wrong_and_takes_its_answers_back(tmp_path, monkeypatch):
    """What was believed before is evaluated again, and the store has what is right."""
    monkeypatch.setattr("secrets.token_hex", lambda count: "0" * 16)  # it says who is audited
    exact = FROSTBITE | {"arithmetic": "exact", "lineage": 3, "algorithm.population": 30}
    wanted = run(tmp_path / "undisturbed", small(exact))
    folder = begin(tmp_path / "run", small(exact | {"backend.audit": 0.2}))
    resolved = specs.resolve(specs.read(folder / "spec.toml"), trust=True)
    told, seen = [], []
    with Liar() as backend:
        loop.evolve(folder, resolved, backend, warn=told.append, ticker=seen.append)
    assert backend.there == ["honest"]
    assert any("where the master gets" in text for text in told)
    assert all(moment.done <= moment.asked for moment in seen)
    assert digest(folder) == wanted
