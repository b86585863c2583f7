"""The evaluator of one worker: requests in, evaluations and failures out."""

import math
import sys

import gymnasium
import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from germline import Birth, Gene, Genome, Snapshot, policies, tasks
from germline.blobs import BlobCache
from germline.errors import InputError
from germline.evaluate import Evaluator
from germline.files import TaskRef
from germline.messages import (
    Evaluation,
    Failure,
    Frozen,
    Key,
    Problem,
    Request,
    Sums,
    decode_events,
    encode,
)
from germline.policies.arithmetic import integers_reference
from germline.tasks import Episode, Outcome, Players, fitting


def made(task, settings=None, policy=None, **fields):
    """A problem: a registered task, and a small network that fits it."""
    space = tasks.make(task, settings or {}).space()
    spec = fitting.fit("mlp", {"hidden": []} | (policy or {}), space)
    if fields.get("arithmetic") == "exact":
        spec = policies.exact(spec, sigma=0.5, genes=1)
    return Problem(TaskRef(task, settings or {}), policies.reference("mlp", spec), **fields)


def individual(problem, gene):
    return Genome(problem.policy, Birth(1)).child(Gene(gene, 0.5))


def asked(problem, number, seeds=(1,), **fields):
    """A request for individual `number`."""
    return Request(Key("r", 0, 0, number), individual(problem, number), tuple(seeds), **fields)


@pytest.fixture
def evaluator():
    """Make evaluators, and close them after the test."""
    opened = []

    def make(problem, blobs=None, **options):
        opened.append(Evaluator(problem, blobs or BlobCache(), **options))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def scored(monkeypatch):
    """Register a function as the task `score`, for one test."""

    def register(function, **options):
        monkeypatch.setattr(tasks.registry, "_registry", dict(tasks.registry._registry))
        tasks.register("score", **options)(function)
        return made("score")

    return register


def first_weight(policy):
    return jax.tree.leaves(policy)[0].ravel()[0]


class TestEvaluations:
    @pytest.mark.parametrize("task", ["gym", "functional"])
    def test_each_request_is_answered_episode_by_episode(self, evaluator, task):
        problem = made(task, {"id": "CartPole-v1"})
        evaluator = evaluator(problem, worker="me")
        requests = [
            asked(problem, 0, (1, 2, 3)),
            asked(problem, 1, (4,), cap=3),
            asked(problem, 2, (1, 2), cap=9),
        ]
        results = evaluator.evaluate(requests)
        assert [result.key for result in results] == [request.key for request in requests]
        for request, result in zip(requests, results, strict=True):
            team = Players(evaluator.spec, evaluator.decoder, [request.genome])
            episodes = [Episode(0, seed, request.cap) for seed in request.episode_seeds]
            outcomes = evaluator.task.play(team, episodes)
            assert result.returns == tuple(o.score for o in outcomes)
            assert result.steps == result.frames == tuple(o.steps for o in outcomes)
            assert result.ends == "".join(o.end for o in outcomes)
            assert result.observation_sums is None
            assert result.worker == "me"
            assert result.seconds > 0
        assert results[1].steps == (3,)
        assert results[1].ends == "c"

    def test_they_travel(self, evaluator):
        problem = made("gym", {"id": "CartPole-v1"})
        results = evaluator(problem).evaluate([asked(problem, 0, (1, 2))])
        assert decode_events(encode(results)) == tuple(results)

    def test_no_requests_have_no_results(self, evaluator):
        assert evaluator(made("functional", {"id": "CartPole-v1"})).evaluate([]) == []

    def test_what_a_task_reports_arrives(self, monkeypatch):
        sums = Sums(2, (1.0, 2.0), (3.0, 4.0))

        def play(team, episodes):
            return [Outcome(float(e.seed), 2, 8, "l", (e.seed, 0.5), sums) for e in episodes]

        problem = made("gym", {"id": "CartPole-v1"})
        evaluator = Evaluator(problem, BlobCache())
        monkeypatch.setattr(type(evaluator.task), "play", lambda self, *given: play(*given))
        (result,) = evaluator.evaluate([asked(problem, 0, (5, 6))])
        assert (result.returns, result.steps, result.frames) == ((5.0, 6.0), (2, 2), (8, 8))
        assert (result.ends, result.behaviour) == ("ll", (5.5, 0.5))
        assert result.observation_sums == Sums(4, (2.0, 4.0), (6.0, 8.0))

    def test_numbers_of_numpy_travel_as_well(self, monkeypatch):
        def play(team, episodes):
            return [Outcome(np.float32(0.5), np.int64(2), np.int64(8), "t") for _ in episodes]

        problem = made("gym", {"id": "CartPole-v1"})
        evaluator = Evaluator(problem, BlobCache())
        monkeypatch.setattr(type(evaluator.task), "play", lambda self, *given: play(*given))
        results = evaluator.evaluate([asked(problem, 0)])
        assert decode_events(encode(results))[0].returns == (0.5,)


class TestFailures:
    @pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("traced", [False, True])
    def test_returns_that_are_no_numbers(self, evaluator, scored, number, traced):
        def score(policy, seed):
            return jnp.where(seed == 13, number, 1.0)

        problem = scored(score, jax=traced)
        requests = [asked(problem, 0), asked(problem, 1, (1, 13, 2)), asked(problem, 2)]
        good, bad, after = evaluator(problem).evaluate(requests)
        assert bad == Failure(requests[1].key, f"its returns are [1.0, {number}, 1.0]")
        assert bad.fitness == -math.inf
        assert (good.returns, after.returns) == ((1.0,), (1.0,))

    def test_an_exception_fails_its_own_individual(self, evaluator, scored):
        def score(policy, seed):
            if seed == 13:
                raise RuntimeError("it broke")
            return 1.0

        problem = scored(score)
        requests = [asked(problem, i, (seed,)) for i, seed in enumerate((1, 13, 2))]
        results = evaluator(problem).evaluate(requests)
        assert results[1] == Failure(requests[1].key, "RuntimeError: it broke")
        assert [type(result) for result in results] == [Evaluation, Failure, Evaluation]

    def test_an_exception_in_traced_code_too(self, evaluator, scored):
        def picky(weight):
            if np.any(weight == unlucky):
                raise ValueError("not this one")
            return weight

        def score(policy, seed):
            weight = first_weight(policy)
            shape = jax.ShapeDtypeStruct((), weight.dtype)
            return jax.pure_callback(picky, shape, weight, vmap_method="expand_dims")

        problem = scored(score, jax=True)
        evaluator = evaluator(problem)
        team = Players(evaluator.spec, evaluator.decoder, [individual(problem, 1)])
        unlucky = first_weight(team.policy(0))
        requests = [asked(problem, number) for number in range(4)]
        results = evaluator.evaluate(requests)
        assert [type(r) for r in results] == [Evaluation, Failure, Evaluation, Evaluation]
        assert results[1].reason.startswith("JaxRuntimeError")

    @pytest.mark.parametrize("task", ["gym", "functional"])
    def test_weights_that_are_not_here_fail_their_own_individual(self, evaluator, task):
        problem = made(task, {"id": "CartPole-v1"})
        lost = Genome(problem.policy, Snapshot("0" * 64)).child(Gene(1, 0.5))
        requests = [asked(problem, number, cap=5) for number in range(3)]
        requests[1] = msgspec.structs.replace(requests[1], genome=lost)
        results = evaluator(problem).evaluate(requests)
        assert [type(result) for result in results] == [Evaluation, Failure, Evaluation]
        assert "0000" in results[1].reason

    def test_a_reason_is_short(self, evaluator, scored):
        def score(policy, seed):
            raise RuntimeError("x" * 10_000)

        problem = scored(score)
        (result,) = evaluator(problem).evaluate([asked(problem, 0)])
        assert len(result.reason) < 600


class TestImports:
    def test_they_are_code_and_need_trust(self, monkeypatch, tmp_path):
        monkeypatch.syspath_prepend(tmp_path)
        (tmp_path / "homemade.py").write_text(
            "from germline import tasks\n"
            "@tasks.register('homemade')\n"
            "def homemade(policy, seed):\n"
            "    return float(seed)\n"
        )
        monkeypatch.setattr(tasks.registry, "_registry", dict(tasks.registry._registry))
        policy = policies.reference("mlp", policies.make("mlp", {}))
        problem = Problem(TaskRef("homemade"), policy, imports=("homemade",))
        with pytest.raises(InputError, match="imports: homemade is code; add --trust"):
            Evaluator(problem, BlobCache())
        assert "homemade" not in sys.modules
        try:
            evaluator = Evaluator(problem, BlobCache(), trust=True)
        finally:
            sys.modules.pop("homemade", None)
        assert evaluator.evaluate([asked(problem, 0, (3, 4))])[0].returns == (3.0, 4.0)

    def test_a_module_that_is_not_here_is_named(self):
        problem = made("gym", {"id": "CartPole-v1"}, imports=("no_such_module",))
        with pytest.raises(InputError, match="imports: no_such_module: No module named"):
            Evaluator(problem, BlobCache(), trust=True)

    @pytest.mark.parametrize(
        ("task", "words"),
        [("gim", r"'gim' is not registered; did you mean gym\?"), ("gym", "id")],
    )
    def test_a_task_that_cannot_be_made_is_refused_at_once(self, task, words):
        policy = policies.reference("mlp", policies.make("mlp", {}))
        with pytest.raises(InputError, match=f"^task.*{words}"):
            Evaluator(Problem(TaskRef(task), policy), BlobCache())


@pytest.mark.numerics
class TestContexts:
    @pytest.mark.parametrize("task", ["gym", "functional"])
    def test_a_policy_is_fed_the_context_of_its_request(self, evaluator, task):
        problem = made(task, {"id": "Pendulum-v1"}, {"normalise": "observations"})
        cache = BlobCache()
        frozen = [Frozen((0.0,) * 3, (1.0,) * 3), Frozen((0.5, -0.5, 1.0), (0.1, 0.2, 0.3))]
        digests = [cache.put(encode(each)) for each in frozen]
        evaluator = evaluator(problem, cache)
        requests = [asked(problem, i, cap=20, context=digests[i % 2]) for i in (0, 1, 2, 2, 1, 0)]
        requests += [asked(problem, 0, cap=20, context=digests[1])]
        results = evaluator.evaluate(requests)
        assert [result.key for result in results] == [request.key for request in requests]
        for request, result in zip(requests, results, strict=True):
            which = frozen[digests.index(request.context)]
            context = policies.Context(np.float32(which.mean), np.float32(which.std))
            team = Players(evaluator.spec, evaluator.decoder, [request.genome], context=context)
            (outcome,) = evaluator.task.play(team, [Episode(0, 1, 20)])
            assert result.returns == (outcome.score,)
            assert result.observation_sums == outcome.sums
        assert results[0].returns != results[-1].returns

    def test_a_policy_that_normalises_fails_without(self, evaluator):
        problem = made("gym", {"id": "Pendulum-v1"}, {"normalise": "observations"})
        (result,) = evaluator(problem).evaluate([asked(problem, 0)])
        assert result.reason.startswith("InputError: context: this policy normalises")

    def test_the_oldest_blobs_are_let_go(self):
        cache = BlobCache(2, size=2)
        first, second, third = (cache.put(blob) for blob in (b"1", b"2", b"1"))
        assert first == third
        cache.put(b"3")
        assert dict(cache) == {first: b"1", cache.put(b"3"): b"3"}
        with pytest.raises(KeyError):
            cache[second]


class Pixels(gymnasium.Env):
    """Bytes that follow from the seed and the actions; the score tells the actions apart."""

    observation_space = spaces.Box(0, 255, (6,), np.uint8)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.integers(0, 256, 6, np.uint8), {}

    def step(self, action):
        self.steps += 1
        obs = self.np_random.integers(0, 256, 6, np.uint8) ^ np.uint8(40 * action)
        return obs, 3.0**-self.steps * action, self.steps == 20, False, {}


def test_exact_arithmetic_plays_as_its_definition_says(evaluator, monkeypatch):
    spec = EnvSpec("Pixels-v0", entry_point=Pixels)
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    problem = made("gym", {"id": spec.id}, {"hidden": [4]}, arithmetic="exact")
    evaluator = evaluator(problem)
    requests = [asked(problem, number, (1, 2, 3)) for number in range(3)]
    scores = []
    for request in requests:
        theta = np.asarray(evaluator.decoder.decode(request.genome))
        for seed in request.episode_seeds:
            environment = Pixels()
            obs, _ = environment.reset(seed=seed)
            score, over = 0.0, False
            while not over:
                logits = integers_reference.outputs(evaluator.spec, theta, obs[None])[0]
                obs, reward, over, *_ = environment.step(int(np.argmax(logits)))
                score += reward
            scores.append(score)
    found = [score for result in evaluator.evaluate(requests) for score in result.returns]
    assert found == scores
    assert len(set(found)) > 3


def test_exact_arithmetic_says_which_observations_it_takes(evaluator):
    problem = made("gym", {"id": "CartPole-v1"}, arithmetic="exact")
    (result,) = evaluator(problem).evaluate([asked(problem, 0)])
    assert "takes uint8 or int8 observations, not float32" in result.reason
