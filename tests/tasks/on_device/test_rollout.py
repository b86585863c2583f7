"""The way of accelerators, on a processor: blocks of slots, calls that fit, several devices."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from germline import Birth, Decoder, Gene, Genome, policies, tasks
from germline.tasks import Episode, fitting
from germline.tasks.on_device import rollout, sizes
from germline.tasks.on_device import task as on_device
from germline.tasks.on_device.rollout import Program

pytestmark = pytest.mark.numerics

CART = ("CartPole-v1", "gru", {})
PENDULUM = ("Pendulum-v1", "mlp", {"normalise": "observations"})


def made(name="CartPole-v1", **given):
    """A task; without settings it is one of those whose programs many tests share."""
    return tasks.make("functional", {"id": name, "slots": 7, "segment": 3} | given)


def players(task, genes, policy="mlp", **given):
    """Siblings that fit a task."""
    space = task.space()
    spec = fitting.fit(policy, {"hidden": []} | given if policy == "mlp" else given, space)
    parent = Genome(policies.reference(policy, spec), Birth(1))
    zeros = np.zeros(space.observation, np.float32)
    genomes = [parent.child(Gene(gene, 0.3)) for gene in genes]
    context = policies.Context(zeros, zeros + 1)
    return tasks.Players(spec, Decoder(spec.layout()), genomes, context=context)


def programs(task, team, block):
    """One way and the other, alike but for how slots are filled."""
    narrow = task.program(team, counting=team.counting, wide=False)
    wide = task.program(team, counting=team.counting, wide=True)
    assert wide._replace(block=None) == narrow
    return narrow, wide._replace(block=block)


class TestBlocks:
    @pytest.mark.parametrize(
        ("name", "policy", "given", "block"),
        [(*CART, 7), (*PENDULUM, 1), (*PENDULUM, 4)],
        ids=lambda part: str(part)[:8],
    )
    def test_equal_one_after_another(self, name, policy, given, block):
        task = made(name)
        team = players(task, range(6), policy, **given)
        narrow, wide = programs(task, team, block)
        episodes = [Episode(n % 6, n, 5 + 5 * (n % 5)) for n in range(40)]
        wanted = on_device.played(narrow, team, episodes)
        assert len({outcome.steps for outcome in wanted}) > 4
        assert on_device.played(wide, team, episodes) == wanted

    def test_fewer_episodes_than_slots(self):
        task = made("Pendulum-v1")
        team = players(task, range(3), normalise="observations")
        narrow, wide = programs(task, team, 4)
        episodes = [Episode(n, n, None) for n in range(3)]
        assert on_device.played(wide, team, episodes) == on_device.played(narrow, team, episodes)

    @pytest.mark.parametrize("slots", [1, 7, 16, 33])
    def test_free_slots_are_numbered_in_order(self, slots):
        before = jax.jit(rollout._before)
        for mask in np.random.default_rng(0).random((20, slots)) < 0.5:
            assert before(mask).tolist() == (np.cumsum(mask) - mask).tolist()

    @given(
        st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9), st.integers(1, 25)), min_size=1)
    )
    @settings(max_examples=25)
    def test_who_plays_beside_does_not_count(self, chosen):
        name, policy, given = PENDULUM
        task = made(name)
        alone, company = (players(task, genes, policy, **given) for genes in ([5], range(31)))
        wide = programs(task, alone, 4)[1]
        (wanted,) = on_device.played(wide, alone, [Episode(0, 1, 20)])
        mine = len(chosen) // 2
        episodes = [Episode(*episode) for episode in chosen]
        episodes.insert(mine, Episode(5, 1, 20))
        assert on_device.played(wide, company, episodes)[mine] == wanted


class OutOfMemory:
    """Builds policies, but only from the `tries`-th time on."""

    def __init__(self, build, tries, words="RESOURCE_EXHAUSTED: Out of memory"):
        self.build, self.tries, self.words = build, tries, words

    def __call__(self, theta):
        self.tries -= 1
        if self.tries > 0:
            raise jax.errors.JaxRuntimeError(self.words)
        return self.build(theta)


class TestMemory:
    def test_a_queue_in_several_calls(self, monkeypatch):
        task = made("Pendulum-v1")
        team = players(task, range(9), normalise="observations")
        episodes = [Episode((5 * n) % 9, n, 10) for n in range(30)]
        wanted = task.play(team, episodes)
        monkeypatch.setattr(on_device, "MOST_EPISODES", 8)
        assert task.play(team, episodes) == wanted

    def test_filmed_as_it_was_played(self):
        task = made("Pendulum-v1")
        team = players(task, range(2), normalise="observations")
        wanted = task.play(team, [Episode(1, 3, 20)])[0]._replace(sums=None)
        assert task.film(team, Episode(1, 3, 20), lambda _: None, drawn=False) == wanted

    def test_what_has_no_room_is_played_with_half_as_much(self, caplog):
        task = made(slots=28)
        team = players(task, range(3), "gru")
        episodes = [Episode(n % 3, n, None) for n in range(20)]
        wanted = made().play(team, episodes)
        team.build = OutOfMemory(team.build, 3)
        with caplog.at_level(logging.WARNING, "germline"):
            assert task.play(team, episodes) == wanted
            assert task.play(team, episodes) == wanted
        said = "task functional: CartPole-v1: the device has no memory for {} episodes at a time; "
        assert [message.partition("from")[0] for message in caplog.messages] == [
            said.format(28),
            said.format(14),
        ]
        assert "from now on 7, which may round differently" in caplog.messages[1]

    def test_other_failures_are_not_memorys(self):
        task = made()
        team = players(task, range(3))
        team.build = OutOfMemory(team.build, 2, "INTERNAL: a bug")
        with pytest.raises(jax.errors.JaxRuntimeError, match="a bug"):
            task.play(team, [Episode(0, 1, None)])

    def test_an_end_where_nothing_helps(self):
        task = made("CartPole-v0", slots=4, segment=9)
        team = players(task, range(3))
        team.build = OutOfMemory(team.build, 10**9)
        with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
            task.play(team, [Episode(0, 1, None)])


class TestSizes:
    @given(st.integers(1, 2**40))
    def test_powers_of_two_within_memory(self, size):
        slots = sizes.accelerator_slots(size)
        assert slots == sizes.power_within(slots) <= sizes.WIDEST
        assert slots == 1 or slots * size <= sizes.share_of_memory()

    def test_small_networks_are_many(self):
        assert sizes.accelerator_slots(100) == 2**16
        assert sizes.accelerator_slots(20_000) == 2**12
        assert sizes.accelerator_slots(2**25) == sizes.share_of_memory() // 2**25

    def test_blocks_are_of_sixteen_or_a_quarter(self):
        found = []
        for slots in (7, 16, 33, 100):
            task = made(slots=slots)
            found.append(task.program(players(task, [1]), counting=False, wide=True).block)
        assert found == [7, 16, 16, 25]

    def test_do_not_depend_on_sums(self):
        task = made(slots=None, segment=None)
        team = players(task, [1], hidden=[64, 64])
        found = [task.program(team, counting=counting, wide=True) for counting in (False, True)]
        assert found[0] == found[1]._replace(counting=False)

    def test_do_not_depend_on_who_plays(self):
        task = made(slots=None, segment=None)
        found = {
            task.program(players(task, range(count), hidden=[64, 64]), counting=False, wide=True)
            for count in (1, 100)
        }
        assert found == {Program(task, 4096, 16, False, 1024)}


SCRIPT = """
import sys
from pathlib import Path
import jax
import runs
task = {"name": "functional", "id": "CartPole-v1"}
policy = {"name": "mlp", "hidden": [4], "normalise": "observations"}
changes = runs.CARTPOLE | {"task": task, "policy": policy, "stop": {"generations": 2}}
print(len(jax.local_devices()), runs.run(Path(sys.argv[1]), runs.small(changes)))
"""


@pytest.mark.slow
def test_a_run_on_eight_devices_is_the_run_on_one(tmp_path):
    support = str(Path(__file__).parents[2] / "support")
    found = {}
    for devices in (1, 8):
        flags = f"--xla_force_host_platform_device_count={devices}"
        environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": support}
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / str(devices))]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        counted, digest = done.stdout.split()
        found[int(counted)] = digest
    assert found[8] == found[1]
