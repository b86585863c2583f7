"""Novelty search: who has children, what is remembered, and that runs go on, those of ES too."""

import msgspec
import numpy as np
import pytest

from evolution import POLICY, SPEC, evolve, scored, told
from germline import algorithms
from germline.algorithms import NSES, NSRAES, NSRES, NoveltyGA, archive
from germline.algorithms.archive import Archive
from germline.decode import Decoder
from germline.errors import InputError
from germline.genome import Snapshot
from germline.messages import Failure
from germline.run import fork, prune, recall
from germline.run import spec as specs
from germline.run.store import Store
from runs import after, begin, digest, go_on, run, small

KINDS = {"ns-es": NSES, "nsr-es": NSRES, "nsra-es": NSRAES}


class TestGA:
    GA = NoveltyGA(population=8, parents=2, sigma=0.1, candidates=0, insertion=0.5, neighbours=2)

    def test_the_most_novel_have_children_however_low_their_fitness(self):
        state = self.GA.start(1, POLICY, "run")
        everyone = [r.genome for r in self.GA.ask(state)]
        places = [0.0, 0.1, 0.2, 9.0, 0.3, 0.15, -5.0, 0.25]
        following, report = told(
            self.GA, state, lambda r: -places[r.key.number], lambda r: (places[r.key.number],)
        )
        assert following.parents == (everyone[3], everyone[6])
        assert report.best == 5.0
        assert report.elite == 5.0

    @pytest.mark.parametrize("candidates", [0, 3])
    def test_parents_and_the_mean_are_by_archive_and_population_together(self, candidates):
        """Over generations, against novelty that is computed here from what was told."""
        ga = NoveltyGA(
            population=20, parents=5, sigma=0.3, candidates=candidates, candidate_episodes=2
        )
        known, first, everyone = Archive(), None, []
        for state, results, report, following in evolve(ga, 4):
            if state.phase == 0:
                first, everyone = results, [r.genome for r in ga.ask(state)]
            if report is None:
                continue
            found = archive.rows([result.behaviour for result in first])
            novelty = archive.novelty(known, found, ga.neighbours, peers=True)
            order = np.argsort(-novelty, kind="stable")[:5]
            assert following.parents == tuple(everyone[n] for n in order)
            assert report.novelty == pytest.approx(novelty.mean())
            assert report.archive == following.archive.size
            known = following.archive

    def test_an_elite_that_is_not_novel_is_kept_and_has_no_children(self):
        ga = NoveltyGA(population=8, parents=2, candidates=0, neighbours=1)
        state = ga.start(1, POLICY, "run")
        best = ga.ask(state)[0].genome
        for _ in range(3):
            # Number 0 is best by far in the first generation, and where most others are.
            state, report = told(
                ga,
                state,
                lambda r: 100.0 if r.genome == best else 0.0,
                lambda r: (float(max(r.key.number - 4, 0)),),
            )
            assert report.champion == best.id
            assert state.elite[0].genome == best
            assert best not in state.parents

    def test_the_archive_grows_at_the_rate_of_insertion(self):
        for rate, low, high in ((0.0, 0, 0), (0.25, 400, 600), (1.0, 2000, 2000)):
            ga = NoveltyGA(population=200, parents=2, candidates=0, insertion=rate)
            state = ga.start(1, POLICY, "run")
            for _ in range(10):
                state, report = told(ga, state, lambda r: 0.0)
                assert report.archive == state.archive.size
            assert low <= state.archive.size <= high

    def test_what_is_inserted_is_drawn_anew_in_every_generation_and_by_the_seed(self):
        def inserted(seed):
            state, every = self.GA.start(seed, POLICY, "run"), []
            for _ in range(3):
                before = state.archive.size
                state, _ = told(self.GA, state, lambda r: 0.0)
                stored = np.frombuffer(state.archive.settled + state.archive.recent, "<f4")
                every.append(tuple(stored[before:].tolist()))
            return every

        assert inserted(1) == inserted(1)
        assert inserted(1) != inserted(2)
        assert len(set(inserted(1))) > 1

    def test_who_failed_has_no_children_and_is_not_remembered(self):
        ga = NoveltyGA(population=8, parents=8, candidates=0, insertion=1.0)
        state = ga.start(1, POLICY, "run")
        requests = ga.ask(state)
        results = scored(requests, lambda r: float("nan") if r.key.number == 7 else 0.0)
        results[2] = Failure(requests[2].key, "broken")
        following, report, _ = ga.tell(state, results)
        alive = [0, 1, 3, 4, 5, 6]
        assert {g.id for g in following.parents} == {requests[n].genome.id for n in alive}
        assert np.frombuffer(following.archive.recent, "<f4").tolist() == alive
        assert report.failures == 1

    def test_it_has_no_other_selection(self):
        # Whatever the candidates are: more of them would not help.
        for settings in ({"ancestors": 2}, {"selection": "candidates"}):
            with pytest.raises(InputError, match="only ga has it; ns-ga selects by novelty"):
                algorithms.make("ns-ga", settings)


def differing(request):
    return (0.0,) * (1 + request.key.number % 2)


class TestBehaviours:
    @pytest.mark.parametrize("name", ["ns-ga", *KINDS])
    def test_a_task_without_them_is_refused(self, name):
        algorithm = algorithms.make(name, {"population": 4})
        with pytest.raises(InputError, match="task: says nothing of behaviour; novelty needs it"):
            for _ in evolve(algorithm, 1, task="positive"):
                pass

    @pytest.mark.parametrize("name", ["ns-ga", *KINDS])
    def test_those_of_differing_length_are_refused(self, name):
        algorithm = algorithms.make(name, {"population": 4})
        with pytest.raises(InputError, match=r"task: behaviours are of \[1, 2\] numbers"):
            told(algorithm, algorithm.start(1, POLICY), lambda r: 0.0, differing)

    def test_so_are_those_of_another_length_than_the_archives(self):
        algorithm = NSES(population=4)
        state, _ = told(algorithm, algorithm.start(1, POLICY), lambda r: 0.0)
        with pytest.raises(InputError, match=r"task: behaviours are of \[1, 3\] numbers"):
            told(algorithm, state, lambda r: 0.0, lambda r: (1.0, 2.0, 3.0))

    def test_a_spec_whose_task_has_none_is_refused_before_it_begins(self):
        cartpole = {"imports": [], "task": {"name": "gym", "id": "CartPole-v1"}}
        spec = small({"algorithm.name": "ns-ga", **cartpole, "policy": {"name": "mlp"}})
        with pytest.raises(InputError, match=r"task.behaviour: novelty needs one"):
            specs.resolve(spec)

    def test_so_is_a_task_on_the_device_that_cannot_have_any(self):
        spec = small({"algorithm.name": "ns-ga", "task": {"name": "bandit"}})
        with pytest.raises(InputError, match=r"task: says nothing of behaviour"):
            specs.resolve(msgspec.structs.replace(spec, policy={"name": "mlp"}), trust=True)


@pytest.mark.parametrize("name", ["ns-ga", "ns-es", "nsra-es"])
class TestRuns:
    def spec(self, name, **changes):
        settings = {
            "ns-ga": {"parents": 3, "candidates": 2, "candidate_episodes": 2, "insertion": 0.5},
            "ns-es": {"centres": 2, "learning_rate": 0.5},
            "nsra-es": {"centres": 2, "patience": 1, "learning_rate": 0.5},
        }[name]
        algorithm = {"name": name, "population": 6, "sigma": 0.5, **settings}
        whole = {"task.name": "placed", "stop.generations": 7, "checkpoint": 3}
        return small({**whole, "algorithm": algorithm, **changes})

    def test_a_run_stopped_again_and_again_is_that_in_one_go(self, name, tmp_path):
        wanted = run(tmp_path / "whole", self.spec(name))
        folder = begin(tmp_path / "parts", self.spec(name))
        sessions = 0
        while go_on(folder, stopped=after(3 + sessions)).reason is None:
            sessions += 1
        assert sessions > 2
        assert digest(folder) == wanted
        with Store.open(folder) as parts, Store.open(tmp_path / "whole") as whole:
            assert parts.reports() == whole.reports()
            assert [r.archive for r in whole.reports()][-1] > 2

    def test_a_fork_goes_the_way_of_its_origin(self, name, tmp_path):
        wanted = run(tmp_path / "run", self.spec(name))
        for generation in (1, 4):
            fork.fork(tmp_path / "run", generation, tmp_path / f"{generation}", {}, trust=True)
            go_on(tmp_path / f"{generation}")
            assert digest(tmp_path / f"{generation}") == wanted

    def test_every_champion_can_be_recalled_and_has_its_own_weights(self, name, tmp_path):
        run(tmp_path / "run", self.spec(name))
        with Store.open(tmp_path / "run") as store:
            reports = store.reports()
        # One whose score is from an earlier generation is among them, and roots are snapshots.
        for champion in {report.champion for report in reports}:
            file = recall.recall(tmp_path / "run", champion, trust=True)
            assert file.genome.id == champion
            root = file.genome.root
            assert (file.weights is not None) == isinstance(root, Snapshot)
            known = {root.sha256: file.weights} if isinstance(root, Snapshot) else {}
            theta = Decoder(SPEC.layout(), known).decode(file.genome)
            played = float((np.asarray(theta) > 0).sum())
            assert played == next(r.elite for r in reports if r.champion == champion)

    def test_a_pruned_run_goes_on_the_same_way(self, name, tmp_path):
        run(tmp_path / "run", self.spec(name, **{"stop.generations": 4}))
        prune.prune(tmp_path / "run", tmp_path / "pruned", trust=True)
        ends = []
        for folder in (tmp_path / "run", tmp_path / "pruned"):
            go_on(folder, {"stop.generations": 7})
            with Store.open(folder) as store:
                ends.append(store.reports()[4:])
        assert ends[0] == ends[1]
        assert len(ends[0]) == 3

    def test_the_champion_of_a_fork_with_other_settings_is_known(self, name, tmp_path):
        """Although it may be of a generation that these settings would not have made."""
        run(tmp_path / "run", self.spec(name, checkpoint=100))
        with Store.open(tmp_path / "run") as store:
            champion = store.reports()[5].champion
        wanted = recall.recall(tmp_path / "run", champion, trust=True)
        changes = {"algorithm.sigma": 0.1, "algorithm.episodes": 2}
        if name != "ns-ga":
            changes |= {"algorithm.learning_rate": 0.01, "algorithm.centres": 1}
        fork.fork(tmp_path / "run", 6, tmp_path / "fork", changes, trust=True)
        go_on(tmp_path / "fork")
        prune.prune(tmp_path / "fork", tmp_path / "pruned", trust=True)
        for folder in ("fork", "pruned"):
            assert recall.recall(tmp_path / folder, champion, trust=True) == wanted
