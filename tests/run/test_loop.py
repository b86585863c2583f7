import msgspec
import pytest

from germline.backends import Serial
from germline.backends.protocols import WorkerStatus
from germline.errors import InputError
from germline.messages import Evaluation
from germline.run import machine
from germline.run.store import Store
from runs import ALGORITHMS, LONG, after, begin, digest, go_on, rows, run, small


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
    exact = {"arithmetic": "exact", "lineage": 3, "algorithm.population": 30}
    wanted = run(tmp_path / "undisturbed", small(exact))
    folder = begin(tmp_path / "run", small(exact | {"backend.audit": 0.2}))
    told, seen = [], []
    backend = Liar()
    go_on(folder, backend=backend, warn=told.append, ticker=seen.append)
    assert backend.there == ["honest"]
    assert any("where the master gets" in text for text in told)
    assert all(moment.done <= moment.asked for moment in seen)
    assert digest(folder) == wanted
