"""Evolution strategies: mirrored pairs, ranks, the integer gradient, the optimizer."""

import jax
import numpy as np
import optax
import pytest

from evolution import POLICY, SPEC, evolve, scored
from germline import algorithms, blobs
from germline.algorithms import ES
from germline.algorithms.strategy import centred_ranks, weighted_noise
from germline.decode import Decoder
from germline.errors import InputError
from germline.genome import Birth, Snapshot
from germline.noise import Stream, reference_noise

SMALL = ES(population=8, sigma=0.1, learning_rate=0.1, weight_decay=0.0, optimizer="sgd")
SIZE = SPEC.layout().size


def centre(algorithm, state):
    snapshots = dict(algorithm.blobs(state))
    return np.asarray(Decoder(SPEC.layout(), snapshots).decode(algorithm.centre(state)))


def stepped(algorithm, fitness, seed=1):
    """The centre before and after one step, and the state after."""
    state = algorithm.start(seed, POLICY, "run")
    after, report, _ = algorithm.tell(state, scored(algorithm.ask(state), fitness))
    return centre(algorithm, state), centre(algorithm, after), after, report


def test_pairs_are_mirrored_about_the_centre_and_see_the_same_episodes():
    for state, *_ in evolve(SMALL, 2):
        requests = SMALL.ask(state)
        decoder = Decoder(SPEC.layout(), dict(SMALL.blobs(state)))
        middle = np.asarray(decoder.decode(SMALL.centre(state)), np.float64)
        for plus, minus in zip(requests[0:8:2], requests[1:8:2], strict=True):
            assert plus.episode_seeds == minus.episode_seeds
            up, down = (np.asarray(decoder.decode(r.genome), np.float64) for r in (plus, minus))
            assert (up != middle).mean() > 0.8  # z is 0 now and then
            np.testing.assert_allclose(up - middle, middle - down, atol=1e-6)
        seeds = {request.genome.genes[0].seed for request in requests[:8]}
        assert len(seeds) == 4


def test_the_centre_is_evaluated_unperturbed_and_its_rank_reported():
    state = SMALL.start(1, POLICY, "run")
    requests = SMALL.ask(state)
    assert len(requests) == 9
    assert requests[8].genome.genes == ()
    assert isinstance(requests[8].genome.root, Birth)
    *_, after, report = stepped(SMALL, lambda r: 2.5 if r.key.number == 8 else r.key.number)
    assert report.rank == 5 / 8  # 3, 4, 5, 6 and 7 are better
    assert report.elite == 2.5
    assert report.champion == requests[8].genome.id
    assert isinstance(SMALL.ask(after)[8].genome.root, Snapshot)
    more = ES(population=8, centre_episodes=5)
    assert [len(r.episode_seeds) for r in more.ask(state)] == [1] * 8 + [5]


def test_ranks_are_centred_integers_and_equals_share_theirs():
    assert centred_ranks(np.array([3.0, 1.0, 2.0, 9.0])).tolist() == [1, -3, -1, 3]
    assert centred_ranks(np.array([1.0, 1.0, 5.0])).tolist() == [-1, -1, 2]
    assert centred_ranks(np.array([2.0, 2.0, 2.0])).tolist() == [0, 0, 0]
    assert centred_ranks(np.array([-np.inf, 4.0, -np.inf])).tolist() == [-1, 2, -1]
    many = centred_ranks(np.random.default_rng(0).normal(size=101))
    assert many.sum() == 0
    assert (many.min(), many.max()) == (-100, 100)


def test_the_gradient_is_the_sum_of_the_noise_by_weight_in_integers():
    seeds = np.array([5, 9, 2**32 - 1], np.uint32)
    weights = np.array([3, -7, 0], np.int64)
    wanted = sum(
        int(w) * np.rint(4 * reference_noise(int(s), Stream.WEIGHTS, 0, 50)).astype(np.int64)
        for s, w in zip(seeds, weights, strict=True)
    )
    assert weighted_noise(seeds, weights, 50).tolist() == wanted.tolist()
    order = [2, 0, 1]
    assert (weighted_noise(seeds[order], weights[order], 50) == wanted).all()


def test_the_gradient_is_right_where_int32_would_overflow():
    seeds = np.full(200, 3, np.uint32)
    weights = np.full(200, 2**22, np.int64)
    one = np.rint(4 * reference_noise(3, Stream.WEIGHTS, 0, 64)).astype(np.int64)
    assert np.abs(one * 200 * 2**22).max() > 2**31
    assert (weighted_noise(seeds, weights, 64) == one * 200 * 2**22).all()


def test_a_step_climbs_towards_the_better_of_each_pair():
    before, after, *_ = stepped(SMALL, lambda r: float(r.key.number == 0))
    direction = reference_noise(
        int(SMALL.seeds(SMALL.start(1, POLICY))[0]), Stream.WEIGHTS, 0, SIZE
    )
    moved = after - before
    assert np.dot(moved, direction) > 0
    # One winner of 8: its doubled rank is 7, its twin's -1; sgd multiplies by the rate alone.
    expected = 0.1 * (7 - -1) / (2 * 7 * 8) * direction
    np.testing.assert_allclose(moved, expected, rtol=1e-5, atol=1e-7)


def test_any_order_of_results_gives_the_same_centre():
    state = SMALL.start(1, POLICY, "run")
    results = scored(SMALL.ask(state), lambda r: (r.key.number * 7) % 5)
    wanted, _, _ = SMALL.tell(state, results)
    found, _, _ = SMALL.tell(state, results[::-1])
    assert found.centre == wanted.centre


def test_weight_decay_pulls_to_zero():
    decayed = ES(population=8, learning_rate=0.1, weight_decay=0.5, optimizer="sgd")
    before, after, *_ = stepped(decayed, lambda r: 0.0)
    np.testing.assert_allclose(after, 0.95 * before, rtol=1e-6)


def test_the_learning_rate_decays():
    settings = {"population": 8, "learning_rate": 0.1, "weight_decay": 0.5, "optimizer": "sgd"}
    slowing = ES(learning_rate_decay=0.5, **settings)
    state, shrunk = slowing.start(1, POLICY, "run"), []
    for _ in range(3):
        after, _, _ = slowing.tell(state, scored(slowing.ask(state), lambda r: 0.0))
        shrunk.append(
            1 - np.linalg.norm(centre(slowing, after)) / np.linalg.norm(centre(slowing, state))
        )
        state = after
    np.testing.assert_allclose(shrunk, [0.05, 0.025, 0.0125], rtol=1e-4)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "rmsprop", "lion", "adabelief"])
def test_any_optimizer_of_optax(name):
    algorithm = ES(population=8, sigma=0.1, optimizer=name)
    *_, (_, _, _, state) = evolve(algorithm, 3)
    assert np.isfinite(centre(algorithm, state)).all()
    read = algorithm.decode(algorithm.encode(state), POLICY)
    results = scored(algorithm.ask(state), lambda r: r.key.number)
    assert algorithm.tell(read, results)[0].centre == algorithm.tell(state, results)[0].centre


def test_adam_is_optaxs():
    algorithm = ES(population=8, sigma=0.1, learning_rate=0.1, weight_decay=0.0)
    before, after, *_ = stepped(algorithm, lambda r: r.key.number)
    state = algorithm.start(1, POLICY)
    ranks = centred_ranks(np.arange(8.0))
    total = weighted_noise(algorithm.seeds(state), ranks[0::2] - ranks[1::2], SIZE)
    ascent = (total / (4 * 2 * 7 * 8)).astype(np.float32)
    adam = optax.adam(0.1)
    with jax.numpy_dtype_promotion("standard"):
        updates, _ = adam.update(-ascent, adam.init(before), before)
    np.testing.assert_allclose(after, before + np.asarray(updates), rtol=1e-6, atol=1e-7)


def test_sigma_adapts_to_the_rank_of_the_centre():
    adapting = ES(population=8, sigma=0.1, sigma_adaptation=1.0)
    worst, best = (
        stepped(adapting, lambda r, v=value: v if r.key.number == 8 else r.key.number)
        for value in (-1.0, 99.0)
    )
    sigmas = [
        abs(adapting.ask(after)[0].genome.genes[-1].sigma) for _, _, after, _ in (worst, best)
    ]
    assert sigmas[0] > 0.2  # all were better than the centre: go farther
    assert sigmas[1] < 0.09  # none was: stay nearer


def test_failed_perturbations_rank_last():
    from germline.messages import Failure

    state = SMALL.start(1, POLICY, "run")
    requests = SMALL.ask(state)
    good = scored(requests, lambda r: -5.0)
    broken = [
        Failure(r.key, "broken") if r.key.number == 0 else s
        for r, s in zip(requests, good, strict=True)
    ]
    low = scored(requests, lambda r: -9.0 if r.key.number == 0 else -5.0)
    assert SMALL.tell(state, broken)[0].centre == SMALL.tell(state, low)[0].centre


def test_the_centre_is_a_blob_by_its_hash():
    *_, state, _ = stepped(SMALL, lambda r: r.key.number)
    root = SMALL.centre(state).root
    assert SMALL.blobs(state) == {root.sha256: state.centre}
    assert blobs.sha256(state.centre) == root.sha256


def test_a_centre_that_runs_away_is_told():
    wild = ES(population=8, learning_rate=1e38, weight_decay=0.9, optimizer="sgd")

    def run():
        state = wild.start(1, POLICY, "run")
        for _ in range(5):
            state, _, _ = wild.tell(state, scored(wild.ask(state), lambda r: r.key.number))

    with pytest.raises(InputError, match=r"generation \d: the centre left: weights: number"):
        run()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"optimizer": "adamm"}, "optimizer: 'adamm' is not one of optax's; did you mean"),
        ({"optimizer": "chain"}, "optimizer: optax.chain cannot be made"),
        ({"optimizer_options": {"b9": 1.0}}, "optimizer: optax.adam cannot be made"),
        ({"population": 7}, "population: expected int that's a multiple of 2"),
        ({"learning_rate": 0}, "learning_rate: expected float > 0"),
    ],
)
def test_mistakes_are_told(settings, words):
    with pytest.raises(InputError, match=words):
        algorithms.make("es", settings)


def test_sigma_does_not_collapse_where_all_are_equal():
    adapting = ES(population=8, sigma=0.1, sigma_adaptation=1.0)
    state = adapting.start(1, POLICY, "run")
    for _ in range(200):
        state, report, _ = adapting.tell(state, scored(adapting.ask(state), lambda r: 1.0))
    assert report.rank == 0.5
    assert 0.1 < report.sigma <= 10.0
