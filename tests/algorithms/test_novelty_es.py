"""Evolution strategies with novelty: where centres go, and how much the return counts."""

import msgspec
import numpy as np
import pytest

from evolution import POLICY, SPEC, scored, told
from germline import algorithms
from germline.algorithms import NSES, NSRAES, NSRES
from germline.algorithms.es import ES
from germline.algorithms.novelty_es import PARTS, mixed
from germline.algorithms.strategy import LARGEST, centred_ranks
from germline.decode import Decoder
from germline.errors import InputError
from germline.genome import Birth, Snapshot
from germline.messages import Failure

SETTINGS = {"population": 8, "sigma": 0.1, "learning_rate": 0.1, "optimizer": "sgd"}
STILL = {**SETTINGS, "weight_decay": 0.0, "centres": 1}


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
