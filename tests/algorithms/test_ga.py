"""The GA of the paper, number by number."""

import msgspec
import numpy as np
import pytest

from evolution import POLICY, SPEC, evolve, scored
from germline import algorithms
from germline.algorithms import GA, Schedule
from germline.decode import Decoder
from germline.errors import InputError
from germline.messages import Evaluation, Failure

PAPER = GA()


def test_the_defaults_are_the_papers():
    assert (PAPER.population, PAPER.parents, PAPER.elites) == (1000, 20, 1)
    assert (PAPER.candidates, PAPER.candidate_episodes, PAPER.episodes) == (10, 30, 1)
    assert (PAPER.sigma, PAPER.operator) == (0.002, "gaussian")


def generations(algorithm, count, fitness, again=None):
    """States after every phase when fitness is a function of (generation, number)."""
    state = algorithm.start(1, POLICY, "run")
    states = [state]
    while state.generation < count:
        requests = algorithm.ask(state)
        chosen = fitness if state.phase == 0 else again or fitness
        results = scored(requests, lambda r, f=chosen: f(r.key.generation, r.key.number))
        state, _, _ = algorithm.tell(state, results)
        states.append(state)
    return states


def plain(algorithm):
    """The same, selecting by fitness."""
    return msgspec.structs.replace(algorithm, selection="fitness")


SMALL = GA(population=30, parents=5, candidates=4, candidate_episodes=3, sigma=0.1)


def test_the_candidates_are_the_best_and_later_the_previous_elite_too():
    states = generations(SMALL, 2, lambda generation, number: number % 17)
    first, second = states[1], states[3]
    born = SMALL.ask(states[0])
    # 16 is the best, then 15 ...; of equals the lower number comes first.
    assert first.candidates == tuple(born[n].genome for n in (16, 15, 14, 13))
    assert len(second.candidates) == 4
    children = SMALL.ask(states[2])
    assert second.candidates[:3] == tuple(children[n].genome for n in (16, 15, 14))
    assert second.candidates[3] == states[2].elite[0].genome
    assert all(len(r.episode_seeds) == 3 for r in SMALL.ask(second))


def test_the_elite_is_the_candidate_with_the_best_mean_and_is_copied_unchanged():
    again = [1.0, 9.0, 3.0, 2.0]
    states = generations(SMALL, 1, lambda g, n: n, lambda g, n: again[n])
    elite = states[-1].elite[0]
    assert elite.score == 9.0
    assert elite.genome == SMALL.ask(states[0])[28].genome
    assert elite.genome in states[-1].parents
    # The previous elite stays when it is the best again: 100 episodes later it is still itself.
    kept = generations(SMALL, 5, lambda g, n: n, lambda g, n: 9.0 if (g == 0) == (n == 1) else 1.0)
    later = [s for s in kept if s.phase == 1 and s.generation > 0]
    assert all(s.candidates[3] == elite.genome for s in later[:1])


def test_parents_are_the_best_with_the_elite_among_them():
    states = generations(SMALL, 1, lambda g, n: n, lambda g, n: float(n == 3))
    born = [request.genome for request in SMALL.ask(states[0])]
    # Candidate 3 is individual 26: it leads, and the four best others follow.
    assert states[-1].parents == (born[26], born[29], born[28], born[27], born[25])


def test_a_previous_elite_takes_one_of_the_parents_places():
    states = generations(SMALL, 2, lambda g, n: n, lambda g, n: float(n == 3))
    second = [request.genome for request in SMALL.ask(states[2])]
    elite = states[2].elite[0].genome
    assert states[-1].elite[0].genome == elite
    assert states[-1].parents == (elite, second[29], second[28], second[27], second[26])


def test_children_have_one_parent_drawn_uniformly_and_one_gene_more():
    algorithm = GA(population=2000, parents=4, candidates=0, sigma=0.1)
    state = generations(algorithm, 1, lambda g, n: n)[-1]
    parents = [parent.digest for parent in state.parents]
    children = [request.genome for request in algorithm.ask(state)]
    counts = np.bincount([parents.index(child.parent_digest) for child in children])
    assert counts.min() > 400
    assert all(len(child.genes) == 1 for child in children)
    assert len({child.genes[-1].seed for child in children}) == len(children)
    assert {child.genes[-1].operator for child in children} == {"gaussian"}


def test_every_weight_of_a_child_moves_biases_too():
    state = generations(SMALL, 1, lambda g, n: n)[-1]
    decoder = Decoder(SPEC.layout())
    moved = np.zeros(SPEC.layout().size, bool)
    for request in SMALL.ask(state):
        child, parent = (decoder.decode(g) for g in (request.genome, request.genome.parent))
        moved |= np.asarray(child) != np.asarray(parent)
    assert moved.all()
    biases = SPEC.layout().unflatten(moved)
    assert biases["dense1/bias"].all()
    assert biases["dense2/bias"].all()


def test_the_higher_fitness_wins():
    low, high = (generations(SMALL, 1, lambda g, n, s=sign: s * n)[-1] for sign in (-1, 1))
    born = [r.genome for r in SMALL.ask(SMALL.start(1, POLICY, "run"))]
    assert high.elite[0].genome in born[-4:]
    assert low.elite[0].genome in born[:4]


def test_without_candidates_the_elite_keeps_the_score_it_was_born_with():
    algorithm = GA(population=6, parents=2, candidates=0, sigma=0.1)
    # Generation 0 has a lucky individual that no later one beats.
    states = generations(algorithm, 4, lambda g, n: 100.0 if (g, n) == (0, 3) else n)
    lucky = algorithm.ask(states[0])[3].genome
    assert [s.elite[0].score for s in states[1:]] == [100.0] * 4
    assert {s.elite[0].genome for s in states[1:]} == {lucky}


def test_failed_candidates_are_not_chosen():
    state = generations(SMALL, 1, lambda g, n: n)[1]
    results = [Failure(r.key, "broken") for r in SMALL.ask(state)]
    results[2] = Evaluation(results[2].key, (-5.0,) * 3, (1,) * 3, (1,) * 3, "ttt")
    after, report, _ = SMALL.tell(state, results)
    assert after.elite[0].genome == state.candidates[2]
    assert (report.elite, report.failures) == (-5.0, 3)
    # If all fail, the best of the population stands in.
    every, _, _ = SMALL.tell(state, [Failure(r.key, "broken") for r in SMALL.ask(state)])
    assert every.elite[0].genome == state.candidates[0]


def test_any_operator_and_schedule():
    sigma = Schedule(start=0.4, end=0.1, generations=2)
    algorithm = GA(population=4, parents=2, candidates=0, sigma=sigma, operator="block:layer")
    found = [
        {(gene.operator, gene.sigma) for r in algorithm.ask(s) for gene in r.genome.genes[-1:]}
        for s in generations(algorithm, 4, lambda g, n: n)[1:]
    ]
    assert found == [
        {("block:layer", v)} for v in (0.2001953125, 0.10009765625) + (0.10009765625,) * 2
    ]
    linear = Schedule(start=1.0, end=0.5, generations=4, shape="linear")
    assert [linear(g) for g in (0, 1, 2, 4, 9)] == [1.0, 0.875, 0.75, 0.5, 0.5]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"elites": 4, "candidates": 4}, "candidates: 4 leave none to challenge the elite of 4"),
        ({"elites": 9, "candidates": 10, "parents": 3}, "elites: 9 are more than the 3 parents"),
        (
            {"elites": 9, "population": 5, "candidates": 0},
            "elites: 9 are more than the population of 5",
        ),
        ({"sigma": -1.0}, "sigma: -1.0 must be above 0"),
        ({"sigma": 1e9}, "sigma: 1000000000.0 is too large"),
        ({"operator": "gausian"}, "operator: 'gausian' is not one of"),
        (
            {"selection": "candidates", "candidates": 20},
            "candidates: 20 are too few to select 20 parents from: give more than",
        ),
        (
            {"selection": "lineage"},
            "selection: invalid enum value 'lineage'; there are fitness, candidates",
        ),
        ({"ancestors": -1}, "ancestors: "),
    ],
)
def test_mistakes_are_told(settings, words):
    with pytest.raises(InputError, match=words):
        algorithms.make("ga", settings)


def test_the_report_speaks_of_the_champion():
    reports = [(r, after) for *_, r, after in evolve(SMALL, 3) if r]
    for report, after in reports:
        assert report.champion == after.elite[0].genome.id
        assert report.elite == after.elite[0].score
        assert report.best >= report.median
        assert report.sigma == 0.1


class TestSelectionByCandidates:
    """The parents are the best of those that have played again."""

    BY = GA(
        population=30,
        parents=3,
        candidates=6,
        candidate_episodes=2,
        sigma=0.1,
        selection="candidates",
    )

    def test_the_truly_best_become_parents_and_not_the_lucky(self):
        """The true value is the number; 24 to 29 play, and 29 to 27 are the best of them.

        Luck turns them round in the first phase, so that by fitness 24 to 26 would be chosen.
        """

        def lucky(generation, number):
            return number if number < 24 else 1000 - number

        true = [24.0, 25.0, 26.0, 27.0, 28.0, 29.0]  # of the candidates, best by luck first
        for algorithm, chosen in ((self.BY, (29, 28, 27)), (plain(self.BY), (29, 24, 25))):
            states = generations(algorithm, 1, lucky, lambda g, n: true[n])
            born = [request.genome for request in algorithm.ask(states[0])]
            assert states[-1].parents == tuple(born[n] for n in chosen)
            assert states[-1].elite[0].score == 29.0

    def test_the_first_episode_has_no_part_in_it(self):
        after = [
            generations(self.BY, 1, lambda g, n, s=scale: s * n, lambda g, n: (7 * n) % 5)[-1]
            for scale in (1, 1000)
        ]
        assert after[0].parents == after[1].parents

    def test_the_previous_elite_can_stay_a_parent_and_can_be_replaced(self):
        for best, stays in ((5, True), (0, False)):
            states = generations(self.BY, 2, lambda g, n: n, lambda g, n, b=best: float(n == b))
            elite = states[2].elite[0].genome
            assert (elite in states[-1].parents) == stays

    def test_failures_are_not_among_the_parents(self):
        state = generations(self.BY, 1, lambda g, n: n)[1]
        results = [Failure(r.key, "broken") for r in self.BY.ask(state)]
        results[4] = Evaluation(results[4].key, (-5.0, -7.0), (1, 1), (1, 1), "tt")
        after, report, _ = self.BY.tell(state, results)
        assert after.parents == (state.candidates[4],)
        assert report.elite == -6.0
        # If all fail, it is by fitness.
        every, _, _ = self.BY.tell(state, [Failure(r.key, "broken") for r in self.BY.ask(state)])
        assert every.parents == state.candidates[:3]

    def test_it_needs_no_elite(self):
        none = msgspec.structs.replace(self.BY, elites=0)
        states = generations(none, 2, lambda g, n: n, lambda g, n: -n)
        assert [len(s.candidates) for s in states if s.phase == 1] == [6, 6]
        assert [s.parents for s in states if s.phase == 0][1] == states[1].candidates[:3]
        *_, report, _ = list(evolve(none, 1))[-1]
        assert report.elite <= report.best


class TestSelectionByAncestors:
    """A score is the mean of an individual's own fitness and of what its ancestors are worth."""

    BY = GA(population=12, parents=4, candidates=3, candidate_episodes=2, sigma=0.1, ancestors=2)

    @staticmethod
    def fitness(request):
        """A number that follows from who it is."""
        return int(request.genome.digest[:4], 16) % 997

    def checked(self, algorithm, count):
        """Check all scores of `count` generations against a family tree kept by hand.

        Candidates do the worse the better they were, so that there are elites of all ages.
        """
        tree, state = {}, algorithm.start(1, POLICY, "run")
        while state.generation < count:
            requests = algorithm.ask(state)
            if state.phase == 1:
                results = scored(requests, lambda r: -self.fitness(r))
                state, _, _ = algorithm.tell(state, results)
                continue
            results = scored(requests, self.fitness)
            results[5] = Failure(requests[5].key, "broken")
            born = [request.genome for request in requests]
            for genome, result in zip(born, results, strict=True):
                tree[genome.digest] = state.generation, genome.parent_digest, result.fitness
            expected = [by_hand(genome, tree, algorithm.ancestors) for genome in born]
            assert algorithm.scores(state, dict(enumerate(results))).tolist() == expected
            before = state
            state, _, _ = algorithm.tell(state, results)
            yield before, born, expected, state

    @pytest.mark.parametrize("ancestors", [1, 2, 4])
    def test_it_is_exactly_the_mean_of_the_right_episodes(self, ancestors):
        algorithm = msgspec.structs.replace(self.BY, ancestors=ancestors)
        elites = 0
        for _, born, expected, _ in self.checked(algorithm, 8):
            assert expected[5] == -np.inf
            ages = {len(genome.genes) for genome in born}
            elites += len(ages) > 1  # children of an elite that is older than the other parents
        assert elites > 2

    def test_the_best_by_it_play_again_and_become_parents(self):
        for before, born, expected, after in self.checked(self.BY, 5):
            order = sorted(range(12), key=lambda n: -expected[n])
            fresh = 3 - len(before.elite)
            assert after.candidates[:fresh] == tuple(born[n] for n in order[:fresh])
            done, _, _ = self.BY.tell(after, scored(self.BY.ask(after), lambda r: r.key.number))
            others = [born[n] for n in order if born[n] != done.elite[0].genome]
            assert done.parents == (done.elite[0].genome, *others[:3])

    def test_without_candidates_the_elite_is_the_best_by_it(self):
        alone = msgspec.structs.replace(self.BY, candidates=0)
        best = -np.inf
        for _, _, expected, after in self.checked(alone, 6):
            best = max(best, *expected)
            assert after.elite[0].score == best

    def test_truly_better_lineages_win_where_luck_is_larger(self):
        """Values are inherited and change a little; luck in an episode is ten times as large."""

        def true(genome):
            return sum(gene.seed / 2**32 - 0.5 for gene in genome.genes)

        def value(ancestors, seed):
            algorithm = GA(
                population=60, parents=10, elites=0, candidates=0, sigma=0.1, ancestors=ancestors
            )
            luck, state = np.random.default_rng(seed), algorithm.start(seed, POLICY, "run")
            while state.generation < 10:
                requests = algorithm.ask(state)
                results = scored(requests, lambda r: true(r.genome) + luck.normal(0, 3))
                state, _, _ = algorithm.tell(state, results)
            return np.mean([true(parent) for parent in state.parents])

        means = [np.mean([value(n, seed) for seed in range(10)]) for n in (0, 1)]
        assert means[1] > 1.2 * means[0] > 0

    def test_a_state_without_ancestry_goes_on(self):
        """As one does that was kept before there was any, or by a run without ancestors."""
        off = msgspec.structs.replace(self.BY, ancestors=0)
        old = generations(off, 3, lambda g, n: n)[-1]
        fields = msgspec.msgpack.decode(off.encode(old))
        assert fields.pop("ancestry") == []
        state = self.BY.decode(msgspec.msgpack.encode(fields), POLICY)
        assert state == old
        while state.generation < 5:
            state, _, _ = self.BY.tell(state, scored(self.BY.ask(state), lambda r: r.key.number))
        lengths = sorted(len(line) for line in state.ancestry)
        assert lengths in ([1] * 4, [0, 1, 1, 1]), "only an elite of long ago has none"

    def test_no_more_is_remembered_than_is_of_use(self):
        for ancestors, length in ((1, 0), (2, 1), (4, 3)):
            algorithm = msgspec.structs.replace(self.BY, elites=0, ancestors=ancestors)
            state = generations(algorithm, 6, lambda g, n: n)[-1]
            assert max([0, *map(len, state.ancestry)]) == length
            assert len(state.ancestry) == (len(state.parents) if length else 0)
            assert algorithm.decode(algorithm.encode(state), POLICY) == state


def by_hand(genome, tree, ancestors):
    """The mean of a fitness and, for so many ancestors, of the mean of their children then."""
    generation, parent, own = tree[genome.digest]
    parts = [own]
    while parent is not None and len(parts) <= ancestors:
        family = [f for g, p, f in tree.values() if (g, p) == (generation, parent) and f > -np.inf]
        parts.append(sum(family) / len(family))
        generation, parent, _ = tree[parent]
    return (parts[0] + sum(parts[1:])) / len(parts)
