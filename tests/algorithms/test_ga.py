"""The GA of the paper, number by number."""

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
        ({"elites": 9, "population": 5, "candidates": 0}, "elites: 9 are more than the population"),
        ({"sigma": -1.0}, "sigma: -1.0 must be above 0"),
        ({"sigma": 1e9}, "sigma: 1000000000.0 is too large"),
        ({"operator": "gausian"}, "operator: 'gausian' is not one of"),
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
