"""Novelty search: who has children, where centres go, what is remembered, and that runs go on."""

import msgspec
import numpy as np
import pytest

from evolution import POLICY, SPEC, evolve, own_number, scored
from germline import algorithms
from germline.algorithms import NSES, NSRAES, NSRES, NoveltyGA, archive
from germline.algorithms.archive import Archive
from germline.algorithms.es import ES
from germline.algorithms.novelty_es import PARTS, mixed
from germline.algorithms.strategy import LARGEST, centred_ranks
from germline.decode import Decoder
from germline.errors import InputError
from germline.genome import Birth, Snapshot
from germline.messages import Failure
from germline.run import fork, prune, recall
from germline.run import spec as specs
from germline.run.store import Store
from runs import after, begin, digest, go_on, run, small

SETTINGS = {"population": 8, "sigma": 0.1, "learning_rate": 0.1, "optimizer": "sgd"}
STILL = {**SETTINGS, "weight_decay": 0.0, "centres": 1}
KINDS = {"ns-es": NSES, "nsr-es": NSRES, "nsra-es": NSRAES}


def told(algorithm, state, fitness, behaviour=own_number):
    """The state and the report after a phase."""
    return algorithm.tell(state, scored(algorithm.ask(state), fitness, behaviour))[:2]


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


def differing(request):
    return (0.0,) * (1 + request.key.number % 2)


def weights(algorithm, state):
    """Of the centre that is perturbed in a state."""
    decoder = Decoder(SPEC.layout(), dict(algorithm.blobs(state)))
    return np.asarray(decoder.decode(algorithm.centre(state)), np.float64)


def opposed(request):
    """Behaviours that are the farther from the centre's, at 0, the lower the number."""
    return (0.0 if request.key.number == 8 else 10.0 - request.key.number,)


class TestCentres:
    def test_ns_es_moves_to_what_is_novel_against_the_return(self):
        """As ES would if novelty were the return."""
        state = NSES(**STILL).start(1, POLICY, "run")
        found, _ = told(NSES(**STILL), state, lambda r: r.key.number, opposed)
        plain = ES(**{k: v for k, v in STILL.items() if k != "centres"})
        other = plain.start(1, POLICY, "run")
        up, _ = told(plain, other, lambda r: -r.key.number)
        down, _ = told(plain, other, lambda r: r.key.number)
        assert found.centres[0].weights == up.centre != down.centre

    def test_nsra_es_begins_as_es_does(self):
        plain = ES(**{k: v for k, v in STILL.items() if k != "centres"})
        found, _ = told(
            NSRAES(**STILL), NSRAES(**STILL).start(1, POLICY), lambda r: r.key.number, opposed
        )
        wanted, _ = told(plain, plain.start(1, POLICY), lambda r: r.key.number)
        assert found.centres[0].weights == wanted.centre

    def test_nsr_es_is_half_way_between(self):
        """Where both agree it goes that way; where they are opposed it stays."""
        algorithm = NSRES(**STILL)
        state = algorithm.start(1, POLICY, "run")
        before = weights(algorithm, state)
        stays, _ = told(algorithm, state, lambda r: r.key.number, opposed)
        np.testing.assert_array_equal(weights(algorithm, stays), before)
        goes, _ = told(algorithm, state, lambda r: -r.key.number, opposed)
        whole, _ = told(NSES(**STILL), NSES(**STILL).start(1, POLICY), lambda r: 0.0, opposed)
        assert goes.centres[0].weights == whole.centres[0].weights

    def test_ranks_are_mixed_in_integers(self):
        returns, novelty = np.array([3.0, 1.0, 2.0, -np.inf]), np.array([0.5, 0.5, 9.0, -np.inf])
        for weight in (0, 5, 50, 100):
            ranks = mixed(returns, novelty, weight)
            assert ranks.dtype == np.int64
            share = weight / PARTS
            mean = share * centred_ranks(returns) + (1 - share) * centred_ranks(novelty)
            np.testing.assert_allclose(ranks / PARTS, mean)

    def test_the_largest_population_is_added_up_in_its_integers(self):
        algorithms.make("ns-es", {"population": 2**18})
        with pytest.raises(InputError, match="population: expected int <= 262144"):
            algorithms.make("ns-es", {"population": 2**18 + 2})
        assert 2 * PARTS * 2**18 * LARGEST < 2**31

    def test_novelty_is_by_the_archive_with_what_the_centre_just_did(self):
        """Not by other perturbations: four at one far place are as novel as one."""
        algorithm = NSES(**{**STILL, "neighbours": 1})
        state = algorithm.start(1, POLICY, "run")
        state, report = told(algorithm, state, lambda r: 0.0, lambda r: (float(r.key.number < 8),))
        assert report.novelty == 1.0  # all at 1, the centre at 0
        assert report.archive == 1
        state, report = told(algorithm, state, lambda r: 0.0, lambda r: (1.0,))
        assert (report.novelty, report.archive) == (0.0, 2)

    def test_each_centre_has_its_own_memory_and_only_the_chosen_one_moves(self):
        algorithm = NSES(population=8, sigma=0.1, centres=3)
        state = algorithm.start(1, POLICY, "run")
        births = []
        for generation in range(8):
            chosen, before = state.chosen, state.centres
            if generation < 3:
                assert chosen == generation  # each of them once, to begin with
                births.append(algorithm.centre(state))
                assert isinstance(births[-1].root, Birth)
            else:
                assert isinstance(algorithm.centre(state).root, Snapshot)
            state, _ = told(algorithm, state, lambda r: r.key.number)
            moved = [n for n in range(3) if state.centres[n] != before[n]]
            assert moved == [chosen]
        assert len({genome.id for genome in births}) == 3
        counts = [int(np.frombuffer(c.optimizer[0].data, np.int32)[0]) for c in state.centres]
        assert sum(counts) == 8

    def test_centres_are_drawn_by_their_novelty(self):
        """Two of them stand together and one far off, which is chosen in proportion."""
        algorithm = NSES(population=2, sigma=0.1, centres=3, neighbours=2)
        places = {0: 0.0, 1: 0.0, 2: 6.0}
        state = algorithm.start(1, POLICY, "run")
        for _ in range(3):
            place = places[state.chosen]
            state, _ = told(algorithm, state, lambda r: 0.0, lambda r, at=place: (at,))
        # In the archive {0, 0, 6} the novelty of 0 is 0, that of 6 is (0 + 6) / 2.
        assert state.chosen == 2
        places, state = {0: 0.0, 1: 2.0, 2: 6.0}, algorithm.start(1, POLICY, "run")
        for _ in range(2):
            place = places[state.chosen]
            state, _ = told(algorithm, state, lambda r: 0.0, lambda r, at=place: (at,))
        chosen = []
        for seed in range(200):
            reseeded = msgspec.structs.replace(state, seed=seed)
            chosen.append(told(algorithm, reseeded, lambda r: 0.0, lambda r: (6.0,))[0].chosen)
        # Novelty (0 + 2)/2, (0 + 2)/2, (0 + 4)/2: one in four, one in four, a half.
        shares = np.bincount(chosen, minlength=3) / 200
        np.testing.assert_allclose(shares, [0.25, 0.25, 0.5], atol=0.1)

    def test_centres_of_no_novelty_are_drawn_evenly(self):
        algorithm = NSES(population=2, sigma=0.1, centres=2)
        chosen = set()
        for seed in range(20):
            state = algorithm.start(seed, POLICY, "run")
            for _ in range(2):
                state, _ = told(algorithm, state, lambda r: 0.0, lambda r: (1.0,))
            chosen.add(state.chosen)
        assert chosen == {0, 1}

    def test_a_centre_that_failed_is_not_remembered_and_the_run_goes_on(self):
        algorithm = NSES(population=4, sigma=0.1, centres=1)
        state = algorithm.start(1, POLICY, "run")
        for _ in range(3):
            requests = algorithm.ask(state)
            results = scored(requests, lambda r: r.key.number)
            results[4] = Failure(requests[4].key, "broken")
            state, report, _ = algorithm.tell(state, results)
            assert report.archive == 0
            assert report.elite == -np.inf
            assert report.champion == requests[4].genome.id

    def test_the_champion_is_the_best_centre_so_far(self):
        algorithm = NSES(population=4, sigma=0.1, centres=2)
        scores = iter([1.0, 5.0, 3.0, 4.0, 6.0])
        state, seen = algorithm.start(1, POLICY, "run"), []
        for _ in range(5):
            value, name = next(scores), algorithm.centre(state).id
            state, report = told(
                algorithm, state, lambda r, v=value: v if r.key.number == 4 else 99.0
            )
            seen.append((name, value))
            best = max(seen, key=lambda pair: pair[1])
            assert (report.champion, report.elite) == best

    def test_a_fork_can_have_more_of_them_or_fewer(self):
        state = NSES(**SETTINGS, centres=3).start(1, POLICY, "run")
        for _ in range(4):
            state, _ = told(NSES(**SETTINGS, centres=3), state, lambda r: 1.0)
        for count in (1, 2, 5):
            forked, seen = state, set()
            for _ in range(9):
                forked, _ = told(NSES(**SETTINGS, centres=count), forked, lambda r: 1.0)
                seen.add(forked.chosen)
            assert len(forked.centres) == count
            assert all(centre.weights for centre in forked.centres)
            assert seen <= set(range(count))


class TestAdaptation:
    ADAPTING = NSRAES(population=4, sigma=0.1, centres=1, step=0.2, patience=2)

    def weights(self, scores, algorithm=ADAPTING):
        """The weight of the return in every generation, by what the centre got."""
        state, found = algorithm.start(1, POLICY, "run"), []
        for value in scores:
            state, report = told(algorithm, state, lambda r, v=value: v)
            found.append(report.reward_weight)
        return found

    def test_the_weight_falls_when_the_best_has_not_grown_for_so_long(self):
        assert self.weights([5, 5, 5, 5, 5]) == [1.0, 1.0, 0.8, 0.8, 0.6]
        assert self.weights([5, 4, 3, 2, 1]) == [1.0, 1.0, 0.8, 0.8, 0.6]

    def test_it_rises_when_the_best_grows_and_the_wait_begins_anew(self):
        assert self.weights([5, 5, 5, 5, 5, 6, 5, 5]) == [1, 1, 0.8, 0.8, 0.6, 0.8, 0.8, 0.6]

    def test_it_stays_between_nothing_and_all(self):
        assert self.weights([5] * 15)[-1] == 0.0
        assert self.weights(range(9)) == [1.0] * 9

    def test_the_others_keep_theirs(self):
        for kind, weight in ((NSES, 0.0), (NSRES, 0.5)):
            assert self.weights([5, 5, 6, 5, 5], kind(population=4, centres=1)) == [weight] * 5

    def test_a_step_is_in_hundredths(self):
        with pytest.raises(InputError, match=r"step: 0.033 is not a whole number of hundredths"):
            algorithms.make("nsra-es", {"step": 0.033})


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
