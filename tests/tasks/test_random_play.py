"""The reference batch of a task, and runs whose policies take their statistics from it."""

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import germline
import runs
from germline import draws, files, policies, tasks
from germline.backends import Processes, Serial
from germline.draws import Purpose
from germline.errors import InputError
from germline.run import loop, score
from germline.run import spec as specs
from germline.run.store import Store
from germline.tasks import fitting, random_play, spaces
from germline.tasks.on_device.task import DeviceTask
from networks import random_weights

PONG = {"game": "pong", "size": [42, 42], "stack": 1}
PLAYED = {"name": "atari", "game": "frostbite", "size": [16, 16], "stack": 2, "limit": 20}
NETWORK = {
    "name": "conv",
    "filters": [3],
    "kernels": [4],
    "strides": [4],
    "hidden": [6],
    "normalise": "virtual",
}


FEW_SLOTS = {"slots": 4}


@dataclass(frozen=True)
class Falling:
    """A dot that falls over 6×6 pixels, one row a step; a move right or left shifts it."""

    space = spaces.discrete((6, 6, 1), "float32", 2)
    limit = None
    pace = 10

    def reset(self, key):
        column = jax.random.randint(key, (), 0, 6)
        state = jnp.stack([jnp.int32(0), column])
        return state, self.seen(state)

    def step(self, state, action, key):
        column = (state[1] + jnp.where(action == 1, 1, 5)) % 6
        state = jnp.stack([state[0] + 1, column]).astype(jnp.int32)
        return state, self.seen(state), column.astype(jnp.float32), state[0] == 5

    def seen(self, state):
        return jnp.zeros((6, 6, 1)).at[state[0], state[1], 0].set(1.0)

    def behaviour(self, state, obs):
        return None


@tasks.register("falling")
class FallingTask(DeviceTask, frozen=True, kw_only=True):
    def dynamics(self):
        return Falling()


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


class TestTheBatch:
    def test_what_jax_may_still_look_at_is_not_written_to(self, monkeypatch):
        given = []

        def noting(see):
            def noted(shown, sight):
                given.append((shown, shown.copy()))
                return see(shown, sight)

            return noted

        monkeypatch.setattr(jax, "jit", noting)
        seen = [*islice(random_play._on_host(tasks.make("atari", PONG)), 100)]
        assert len(seen) == len(given) == 100
        assert all((shown == before).all() for shown, before in given)
        assert len({before.tobytes() for _, before in given}) > 10

    def test_it_is_the_same_in_another_process(self):
        code = (
            "import hashlib; from germline import tasks; from germline.tasks import random_play;"
            f"found = random_play.observations(tasks.make('atari', {PONG}));"
            "print(hashlib.sha256(found.tobytes()).hexdigest())"
        )
        command = [sys.executable, "-c", code]
        there = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
        assert there.stdout.strip() == digest(random_play.observations(tasks.make("atari", PONG)))

    def test_it_is_of_the_form_that_the_policy_sees(self):
        found = random_play.observations(tasks.make("atari", PONG))
        assert (found.shape, found.dtype) == ((128, 42, 42, 1), np.uint8)

    def test_no_two_pictures_of_a_game_are_the_same(self):
        found = random_play.observations(tasks.make("atari", PONG)).reshape(128, -1)
        assert len(np.unique(found, axis=0)) == 128

    def test_another_game_has_another_one(self):
        others = [tasks.make("atari", PONG | {"game": game}) for game in ("pong", "boxing")]
        assert digest(random_play.observations(others[0])) != digest(
            random_play.observations(others[1])
        )

    def test_every_16th_observation_of_random_play_is_kept(self):
        lane = tasks.make("gym", {"id": "CartPole-v1"}).lane()
        seeds = draws.episode_seeds(0, Purpose.REFERENCE, 0, np.zeros(1, np.uint32), 2048)[0]
        bits = draws.draw(0, Purpose.REFERENCE, 1, np.arange(2048)[:, None], np.arange(2))
        seen, actions, into = [], iter(bits.astype(np.int64).argmax(1).tolist()), np.zeros(4)
        for seed in seeds:
            lane.start(tasks.Episode(0, seed, None), into)
            seen.append(into.copy())
            while lane.step(next(actions, 0), into) is None:
                seen.append(into.copy())
            if len(seen) >= 2048:
                break
        lane.close()
        found = random_play.observations(tasks.make("gym", {"id": "CartPole-v1"}))
        np.testing.assert_array_equal(found, np.array(seen, np.float32)[:2048:16])

    @pytest.mark.parametrize(
        ("name", "settings"),
        [
            ("gym", {"id": "Pendulum-v1"}),
            ("gym", {"id": "Blackjack-v1"}),
            ("functional", {"id": "Pendulum-v1"}),
        ],
    )
    def test_it_varies_as_far_as_the_task_does(self, name, settings):
        found = random_play.observations(tasks.make(name, settings))
        assert found.shape == (128, *tasks.make(name, settings).space().observation)
        assert len(np.unique(found, axis=0)) > 50

    def test_on_the_device_it_reaches_every_moment_of_an_episode(self):
        found = random_play.observations(tasks.make("falling", FEW_SLOTS))
        rows, columns = found[..., 0].any(2), found[..., 0].any(1)
        assert (found.sum((1, 2, 3)) == 1).all()
        # The fifth row is never seen, because the episode is over then.
        assert rows.any(0).tolist() == [True] * 5 + [False]
        assert columns.any(0).all()

    def test_what_cannot_be_played_at_random_is_refused(self):
        import games  # noqa: F401 - registers its tasks

        with pytest.raises(InputError, match="random play, which positive does not give"):
            random_play.observations(tasks.make("positive", {}))


@pytest.mark.parametrize(
    ("name", "settings", "played"),
    [
        ("conv", {"filters": [4], "kernels": [8], "strides": [4], "hidden": [5]}, PONG),
        ("conv-lstm", {"filters": 4, "units": 8}, PONG),
        pytest.param("dqn", {"padding": "valid"}, {"game": "pong"}, marks=pytest.mark.slow),
    ],
    ids=["conv", "conv-lstm", "dqn"],
)
def test_sums_on_the_batch_have_mean_0_and_deviation_1_times_gain_plus_bias(name, settings, played):
    task = tasks.make("atari", played)
    spec = fitting.fit(name, settings | {"normalise": "virtual"}, task.space())
    theta = random_weights(spec.layout(), sigma=0.02)
    policy = policies.build(spec, theta, context=random_play.context(task, spec))
    layers = policy.layers
    found = {}

    class Noting:
        """Layers that note what a layer has before its activation function."""

        def __getattr__(self, name):
            return getattr(layers, name)

        def hidden(self, name, y, activation="relu"):
            found[name] = layers.hidden(name, y, "linear")
            return layers.hidden(name, y, activation)

    def noted(obs):
        spec.forward(Noting(), obs, spec.initial_carry())
        return dict(found)

    outputs = jax.tree.map(np.asarray, jax.jit(jax.vmap(noted))(random_play.observations(task)))
    normalised = {t.name.removesuffix("/gain") for t in spec.layout().tensors if "gain" in t.name}
    assert set(outputs) == normalised
    for layer, y in outputs.items():
        gain, bias = (np.asarray(layers.vectors[f"{layer}/{name}"]) for name in ("gain", "bias"))
        axes = tuple(range(y.ndim - 1))
        np.testing.assert_allclose(y.mean(axes), bias, atol=2e-3)
        live = np.asarray(layers.statistics[layer].std) > 0.1  # not a unit that never changes
        np.testing.assert_allclose(y.std(axes)[live], (1 + gain)[live], rtol=2e-2)
        assert live.any()


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """A run that the serial engine did."""
    folder = tmp_path_factory.mktemp("virtual") / "run"
    run(folder, Serial())
    return folder


@pytest.mark.numerics
class TestRuns:
    @pytest.mark.slow
    @pytest.mark.parametrize("together", [False, True], ids=["processes", "together"])
    def test_every_engine_gives_the_same_lineage(self, wanted, together, tmp_path):
        engine = Processes(2, together=True, slots=4) if together else Processes(2)
        assert run(tmp_path / "run", engine) == runs.digest(wanted)

    def test_they_differ_from_those_without(self, tmp_path):
        plain = {k: v for k, v in NETWORK.items() if k != "normalise"}
        for name, policy in (("plain", plain), ("normalised", NETWORK)):
            run(tmp_path / name, Serial(), policy=policy, algorithm=runs.ALGORITHMS["ga"])
        assert returns(tmp_path / "plain") != returns(tmp_path / "normalised")

    @pytest.mark.slow
    def test_a_genome_file_alone_plays_as_the_run_did(self, wanted, tmp_path):
        file = germline.Run(wanted).champion
        path = tmp_path / "champion.safetensors"
        files.write(path, file)
        code = (
            "from pathlib import Path; from germline import files, score;"
            f"print(score(files.read(Path({str(path)!r})), 3, workers=1).returns)"
        )
        command = [sys.executable, "-c", code]
        there = subprocess.run(
            command, capture_output=True, text=True, check=True, env=os.environ, cwd=tmp_path
        )
        shots = []
        watched = score.watch(file, shots.append, drawn=False, episodes=3)
        assert there.stdout.strip() == str(watched.returns)
        assert len(shots) > 3

    @pytest.mark.slow
    def test_siblings_share_products_on_it(self, tmp_path):
        algorithm = runs.ALGORITHMS["ga"] | {"operator": "lowrank:1"}
        digests = {
            run(tmp_path / str(number), engine, algorithm=algorithm, siblings=4)
            for number, engine in enumerate((Serial(), Processes(2)))
        }
        assert len(digests) == 1

    def test_a_task_on_the_device_is_played_with_it(self):
        task = tasks.make("falling", FEW_SLOTS)
        network = {k: v for k, v in NETWORK.items() if k != "name"}
        spec = fitting.fit("conv", network, task.space())
        assert len({o.score for o in tasks.check(task, policy=spec)}) > 1

    def test_a_task_on_the_host_passes_its_check_with_it(self):
        task = tasks.make("atari", {k: v for k, v in PLAYED.items() if k != "name"})
        network = {k: v for k, v in NETWORK.items() if k != "name"}
        tasks.check(task, policy=fitting.fit("conv", network, task.space()), cap=10)

    def test_a_task_without_random_play_is_refused_at_the_spec(self):
        changes = {"policy": NETWORK, "task": {"name": "positive"}}
        with pytest.raises(InputError, match="policy: normalise: virtual needs observations of"):
            specs.resolve(runs.small(changes), trust=True)


def run(folder, engine, **changes):
    """A small run of Atari with a policy that is normalised; its digest."""
    spec = runs.small({"imports": [], "task": PLAYED, "policy": NETWORK, **changes}, "es")
    resolved = specs.resolve(spec)
    loop.create(folder, resolved)
    with engine as backend:
        loop.evolve(folder, resolved, backend)
    return runs.digest(folder)


def returns(folder):
    with Store.open(folder) as store:
        return [(report.best, report.mean, report.elite) for report in store.reports()]
