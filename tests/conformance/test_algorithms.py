"""The conformance table of algorithms. A new one joins by a line in `ALGORITHMS`."""

from functools import cache

import msgspec
import numpy as np
import pytest

from evolution import POLICY, evolve, final, own_number, problem, scored
from germline import algorithms
from germline.blobs import BlobCache
from germline.errors import InputError
from germline.evaluate import Evaluator
from germline.messages import Evaluation, Failure, Frozen

NARROWING = {
    "population": 64,
    "parents": 8,
    "candidates": 0,
    "sigma": {"start": 0.3, "end": 0.01, "generations": 60},
}
SMALL = {"population": 12, "adaptive_cap": True, "episodes": 2}
ELITE = {"candidates": 4, "candidate_episodes": 3}
ALGORITHMS = {
    "ga": ("ga", {**SMALL, **ELITE, "parents": 3, "sigma": 0.1}),
    "ga without candidates": ("ga", {**SMALL, "candidates": 0, "parents": 3, "sigma": 0.1}),
    "ga without elite": ("ga", {**SMALL, "elites": 0, "parents": 3, "sigma": 0.1}),
    "ga of two elites": ("ga", {**SMALL, **ELITE, "elites": 2, "parents": 3, "sigma": 0.1}),
    "ga with a schedule": (
        "ga",
        {**SMALL, "sigma": {"start": 0.2, "end": 0.1, "generations": 3}, "operator": "lowrank:1"},
    ),
    "ga by its candidates": (
        "ga",
        {**SMALL, **ELITE, "parents": 3, "sigma": 0.1, "selection": "candidates"},
    ),
    "ga by its lineage": ("ga", {**SMALL, **ELITE, "parents": 3, "sigma": 0.1, "ancestors": 2}),
    "es": ("es", {**SMALL, "sigma": 0.1}),
    "es adapting": ("es", {**SMALL, "sigma": 0.1, "sigma_adaptation": 0.5, "optimizer": "sgd"}),
    "ns-ga": ("ns-ga", {**SMALL, **ELITE, "parents": 3, "sigma": 0.1, "insertion": 0.5}),
    "ns-ga without elite": ("ns-ga", {**SMALL, "elites": 0, "parents": 3, "neighbours": 2}),
    "ns-es": ("ns-es", {**SMALL, "sigma": 0.1, "centres": 2, "neighbours": 3}),
    "nsr-es": ("nsr-es", {**SMALL, "sigma": 0.1, "optimizer": "sgd"}),
    "nsra-es": ("nsra-es", {**SMALL, "sigma": 0.1, "patience": 1, "centres": 1}),
    "random-search": ("random-search", {**SMALL, **ELITE}),
    "async-ga": ("async-ga", {**SMALL, **ELITE, "parents": 3, "sigma": 0.1}),
    "async-ga without candidates": (
        "async-ga",
        {**SMALL, "candidates": 0, "parents": 3, "sigma": 0.1},
    ),
    "async-ga without elite": ("async-ga", {**SMALL, "elites": 0, "parents": 3, "sigma": 0.1}),
    "async-ga of two elites": (
        "async-ga",
        {**SMALL, **ELITE, "elites": 2, "parents": 3, "sigma": 0.1},
    ),
}


@cache
def made(name):
    return algorithms.make(*ALGORITHMS[name])


@cache
def evolved(name):
    """Every phase of three generations, which several tests look at."""
    return list(evolve(made(name), 3))


@pytest.fixture(params=ALGORITHMS)
def algorithm(request):
    return made(request.param)


@pytest.fixture
def phases(request, algorithm):
    """What `evolve` yields of the algorithm."""
    return evolved(request.node.callspec.params["algorithm"])


def present(algorithm, state):
    """What is asked for in the generation of a state; without a barrier there may be more."""
    return [r for r in algorithm.ask(state) if r.key.generation == state.generation]


def test_every_algorithm_is_in_the_table():
    assert set(algorithms.names()) == {name for name, _ in ALGORITHMS.values()}


def history(algorithm, phases):
    return [(report, [r.genome.id for r in algorithm.ask(after)]) for _, _, report, after in phases]


def test_the_same_seed_gives_the_same_history_and_another_one_another(algorithm, phases):
    first = history(algorithm, phases)
    assert history(algorithm, evolve(algorithm, 3)) == first
    other = history(algorithm, evolve(algorithm, 1, seed=2))
    assert other != first[: len(other)]


def test_asking_changes_nothing(algorithm, phases):
    for state, *_ in phases:
        before = algorithm.encode(state)
        keys = [request.key for request in algorithm.ask(state)]
        assert keys == [request.key for request in algorithm.ask(state)]
        assert algorithm.encode(state) == before


def test_states_are_plain_data(algorithm, phases):
    for _, _, _, state in phases:
        read = algorithm.decode(algorithm.encode(state), POLICY)
        assert read == state
        assert [r.genome.id for r in algorithm.ask(read)] == [
            r.genome.id for r in algorithm.ask(state)
        ]


def test_results_may_be_told_in_any_order_and_any_parts(algorithm, phases):
    """Without a barrier the order is that of arrival, and only the parts may be any."""
    rng = np.random.default_rng(0)
    for state, results, report, after in phases:
        order = rng.permutation(len(results)).tolist()
        order = sorted(order) if algorithm.asynchronous else order
        for first in range(0, len(order), 5):
            part = [results[i] for i in order[first : first + 5]]
            told = {result.key for result in part}
            waiting = {request.key for request in algorithm.ask(state)}
            assert told <= waiting
            state, reported, _ = algorithm.tell(state, part)
            if first + 5 < len(order):
                assert reported is None
                assert {request.key for request in algorithm.ask(state)} == waiting - told
        assert (state, reported) == (after, report)


def test_results_of_another_phase_are_refused(algorithm):
    state = algorithm.start(1, POLICY, "run")
    result = scored(algorithm.ask(state)[:1], lambda request: 0)[0]
    late = msgspec.structs.replace(result, key=result.key._replace(generation=7))
    with pytest.raises(ValueError, match="was told in generation 0"):
        algorithm.tell(state, [late])
    if not algorithm.asynchronous:  # where any number may be asked for
        beyond = msgspec.structs.replace(result, key=result.key._replace(number=99))
        with pytest.raises(ValueError, match="were asked for"):
            algorithm.tell(state, [beyond])
    empty = msgspec.structs.replace(result, returns=())
    with pytest.raises(ValueError, match="has no returns"):
        algorithm.tell(state, [empty])


def test_keys_and_episode_seeds_are_well_formed(algorithm, phases):
    seen = set()
    for state, *_ in phases:
        requests = algorithm.ask(state)
        own = present(algorithm, state)
        assert [r.key for r in own] == [
            ("run", state.generation, state.phase, number) for number in range(len(own))
        ]
        assert algorithm.asynchronous or own == requests
        for request in requests:
            assert len(set(request.episode_seeds)) == len(request.episode_seeds) >= 1
            assert all(0 <= seed < 2**31 for seed in request.episode_seeds)
        seeds = {seed for request in requests for seed in request.episode_seeds}
        assert not seeds & seen, "episodes of another generation or phase are played again"
        seen |= seeds


def test_a_nan_is_never_selected(algorithm):
    """Whoever returns NaN, or infinity, or fails, has no part in what follows."""
    state = algorithm.start(1, POLICY, "run")
    good = {request.genome.digest for request in algorithm.ask(state)[:4]}

    def results(state):
        bad = [float("nan"), float("inf"), None]
        for number, request in enumerate(algorithm.ask(state)):
            value = bad[number % 3]
            if request.genome.digest in good or state.generation:
                yield from scored([request], lambda request: -1.0)
            elif value is None:
                yield Failure(request.key, "broken")
            else:
                yield from scored([request], lambda request, value=value: value)

    report = None
    while report is None:
        state, report, _ = algorithm.tell(state, list(results(state)))
    assert (report.best, report.mean, report.median) == (-1.0, -1.0, -1.0)
    for genome in (
        *getattr(state, "parents", ()),
        *(e.genome for e in getattr(state, "elite", ())),
    ):
        assert genome.digest in good


def test_a_generation_of_failures_is_the_end(algorithm):
    state = algorithm.start(1, POLICY, "run")
    with pytest.raises(InputError, match="generation 0: every individual failed: the game broke"):
        algorithm.tell(state, [Failure(r.key, "the game broke") for r in algorithm.ask(state)])


def test_reports_count_all_that_was_played(algorithm):
    """Frames are not steps, and the candidates' are not forgotten."""
    played = {"steps": 0, "frames": 0, "evaluations": 0}
    state = algorithm.start(1, POLICY, "run")
    report = None
    while report is None:
        results = []
        for request in algorithm.ask(state):
            count = len(request.episode_seeds)
            steps = tuple(range(3, 3 + count))
            frames = tuple(4 * n - 1 for n in steps)
            returns, ends, did = (1.0,) * count, "t" * count, own_number(request)
            results.append(Evaluation(request.key, returns, steps, frames, ends, did))
            played["steps"] += sum(steps)
            played["frames"] += sum(frames)
            played["evaluations"] += 1
        state, report, _ = algorithm.tell(state, results)
    assert {name: getattr(report, name) for name in played} == played


def test_caps_follow_twice_the_mean_length(algorithm):
    state = algorithm.start(1, POLICY, "run")
    assert {request.cap for request in algorithm.ask(state)} == {None}
    lengths = iter(range(10, 1000, 3))
    first = []
    while state.generation == 0:
        results = []
        for request in algorithm.ask(state):
            steps = tuple(next(lengths) for _ in request.episode_seeds)
            returns, did = (1.0,) * len(steps), own_number(request)
            results.append(Evaluation(request.key, returns, steps, steps, "", did))
            first += steps if state.phase == 0 else ()
        state, _, _ = algorithm.tell(state, results)
    adapted = {request.cap for request in present(algorithm, state)}
    assert adapted == {int(np.ceil(2 * np.mean(first)))}
    limited = msgspec.structs.replace(algorithm, cap=5)
    assert {request.cap for request in limited.ask(state)} == {5}
    fixed = msgspec.structs.replace(algorithm, adaptive_cap=False)
    assert {request.cap for request in fixed.ask(state)} == {None}


def test_observations_are_normalised_by_what_was_seen(algorithm):
    """The statistics are frozen in a generation and follow all earlier ones."""
    from germline import policies

    spec = policies.make("mlp", {"inputs": 4, "hidden": [4], "normalise": "observations"})
    policy = policies.reference("mlp", spec)
    blobs = BlobCache()
    algorithm = msgspec.structs.replace(algorithm, cap=20)
    cartpole = problem("gym", policy, id="CartPole-v1", behaviour="observation")
    evaluator = Evaluator(cartpole, blobs)
    state = algorithm.start(1, policy, "run")
    for blob in algorithm.blobs(state).values():
        blobs.put(blob)
    sums = []
    while state.generation < 2:
        (context,) = {request.context for request in present(algorithm, state)}
        frozen = msgspec.msgpack.decode(blobs[context], type=Frozen)
        if state.generation == 0:
            assert frozen == Frozen((0.0,) * 4, (1.0,) * 4)
        else:
            count = sum(part.count for part in sums)
            mean = np.sum([part.total for part in sums], axis=0) / count
            square = np.sum([part.squares for part in sums], axis=0) / count
            np.testing.assert_allclose(frozen.mean, mean, rtol=1e-12)
            np.testing.assert_allclose(frozen.std, np.sqrt(square - mean**2), rtol=1e-9)
        results = evaluator.evaluate(algorithm.ask(state))
        assert not any(isinstance(result, Failure) for result in results)
        if state.generation == 0:
            sums += [result.observation_sums for result in results]
        state, _, made = algorithm.tell(state, results)
        for blob in made.values():
            blobs.put(blob)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("name", "settings", "generations", "goal"),
    [
        ("ga", NARROWING, 60, -0.002),
        ("async-ga", NARROWING, 60, -0.002),
        (
            "es",
            {"population": 64, "sigma": 0.05, "learning_rate": 0.05, "weight_decay": 0.0},
            60,
            -0.002,
        ),
    ],
    ids=["ga", "async-ga", "es"],
)
def test_they_find_a_known_answer(name, settings, generations, goal, seed):
    """All weights at the target, biases too: a sign error or a bias that stays would show."""
    algorithm = algorithms.make(name, settings)
    assert final(algorithm, generations, seed=seed, task="near").elite > goal


def test_random_search_keeps_the_best_it_ever_saw():
    algorithm = algorithms.make("random-search", {"population": 16, "candidates": 2})
    reports = [report for *_, report, _ in evolve(algorithm, 6) if report]
    elites = [report.elite for report in reports]
    assert elites == sorted(elites)
    assert elites[-1] == max(report.best for report in reports)
