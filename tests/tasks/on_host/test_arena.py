"""Many individuals at once beside an accelerator, on a processor: as if each were played alone."""

import os
import signal
from contextlib import ExitStack, closing
from functools import cache
from itertools import count

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arcade  # noqa: F401 - registers its environments
from germline import Birth, Decoder, Gene, Genome, policies, tasks
from germline.tasks import Episode, fitting
from germline.tasks.on_host import crew
from germline.tasks.on_host.arena import Arena
from germline.tasks.on_host.seats import Bout
from networks import patient

ASTEROIDS = {"game": "asteroids", "size": [20, 16], "stack": 3, "limit": 40}
CONV = {"filters": [2], "kernels": [4], "strides": [4], "hidden": [4]}
SMALL = {"hidden": [4]}


class Tiny(eqx.Module):
    """A user's module, with a leaf that is no weight."""

    first: eqx.nn.Linear
    last: eqx.nn.Linear
    order: np.ndarray
    name: str

    def __init__(self, *, key):
        one, two = jax.random.split(key)
        self.first, self.last = eqx.nn.Linear(4, 5, key=one), eqx.nn.Linear(5, 2, key=two)
        self.order = np.array([4, 1, 0, 2, 3])
        self.name = "tiny"

    def __call__(self, obs, carry):
        return self.last(jnp.tanh(self.first(obs))[self.order]), carry

    def initial_carry(self):
        return ()


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(policies.registry, "_registry", dict(policies.registry._registry))
    policies.register("tiny-in-an-arena")(Tiny)


# task, its settings, policy, its settings
CASES = {
    "Atari in integers": ("atari", ASTEROIDS, "conv", CONV),
    "a pole": ("gym", {"id": "CartPole-v1"}, "mlp", {"hidden": [8]}),
    "a user's module": ("gym", {"id": "CartPole-v1"}, "tiny-in-an-arena", {}),
    "recurrent and continuous": ("gym", {"id": "Pendulum-v1"}, "gru", {"units": 4}),
    "normalised": ("gym", {"id": "CartPole-v1"}, "mlp", SMALL | {"normalise": "observations"}),
    **{
        f"{kind} actions": ("gym", {"id": "Arcade-v0", "options": {"kind": kind}}, "mlp", SMALL)
        for kind in ("several", "binary", "scalar", "whole")
    },
}


class Playground:
    """A task, a policy that fits it, and some individuals."""

    def __init__(self, task, given, policy, more, *, mixed=False):
        self.task = tasks.make(task, given)
        spec = fitting.fit(policy, more, self.task.space())
        self.exact = task == "atari"
        self.arithmetic = "exact" if self.exact else "float32"
        self.spec = policies.exact(spec, sigma=0.5, genes=3) if self.exact else spec
        self.imports = ("arcade",)
        ref = policies.reference(policy, self.spec)
        born = [Genome(ref, Birth(n)).child(Gene(n, 0.5)) for n in range(3)]
        self.genomes = [born[0].child(Gene(n, 0.5)) for n in range(9)]
        if mixed:  # more programs, as they are decoded in batches of each kind
            self.genomes[4:] = [
                *born,
                Genome(ref, Birth(9)),
                born[1].child(Gene(5, 0.25, "sparse:0.5")),
            ]
        shape = self.task.space().observation
        self.context = None
        if getattr(self.spec, "normalise", None):
            ramp = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
            self.context = policies.Context(ramp / 10, ramp + 1)

    def arena(self, hands=2, lanes=2):
        decoder = Decoder(self.spec.layout())
        more = {"hands": hands, "lanes": lanes, "imports": self.imports}
        return closing(Arena(self.task, self.spec, decoder, self.arithmetic, **more))

    def bouts(self, how_many, caps=(None, 5, 9, 30), first=0):
        """Bouts of all individuals in turn, numbered from the first."""
        every = len(self.genomes)
        return [
            Bout(first + n, self.genomes[n % every], self.context, 100 + n, caps[n % len(caps)])
            for n in range(how_many)
        ]

    def wanted(self, bouts):
        """The reference evaluator: each individual alone."""
        found = []
        for bout in bouts:
            given = self.arithmetic, bout.context
            players = tasks.Players(self.spec, Decoder(self.spec.layout()), [bout.genome], *given)
            found += self.task.play(players, [Episode(0, bout.seed, bout.cap)])
        return found

    def compare(self, found, wanted):
        """Equal; but sums of floats may be rounded otherwise in another batch."""
        if self.exact:
            assert found == wanted
            return
        for one, other in zip(found, wanted, strict=True):
            assert one._replace(score=0, sums=None) == other._replace(score=0, sums=None)
            np.testing.assert_allclose(one.score, other.score, rtol=1e-4)
            assert (one.sums is None) == (other.sums is None)
            if one.sums is not None:
                assert one.sums.count == other.sums.count
                np.testing.assert_allclose(one.sums.total, other.sums.total, rtol=1e-4)
                np.testing.assert_allclose(one.sums.squares, other.sums.squares, rtol=1e-4)


def finish(arena, done=None, failed=None, lost=None):
    """Turn until nothing is left; everything is told once."""
    ended = {} if done is None else done
    while arena.busy:
        note(arena.turn(), ended, failed, lost)
    return ended


def note(turn, ended, failed=None, lost=None):
    for told, into in ((turn.ended, ended), (turn.failed, failed), (turn.lost, lost)):
        for number, what in told:
            assert number not in into
            into[number] = what


@pytest.fixture(scope="module")
def opened():
    """Grounds of cases with their arenas, opened once: a hand takes a second to start."""
    with ExitStack() as stack:

        @cache
        def open_(name):
            ground = Playground(*CASES[name], mixed=name == "a pole")
            several = name in ("a pole", "recurrent and continuous", "several actions")
            return ground, stack.enter_context(ground.arena(*((2, 2) if several else (1, 4))))

        yield open_


@pytest.mark.numerics
@pytest.mark.parametrize(
    "name", patient(CASES, {"a user's module", "binary actions", "scalar actions", "whole actions"})
)
def test_everyone_does_as_if_alone(name, opened):
    ground, arena = opened(name)
    assert arena.crew.places == 4  # of either half
    bouts = ground.bouts(33)
    wanted = ground.wanted(bouts)
    for some in (slice(0, 30), slice(30, 33)):  # more than there are places, and fewer
        arena.add(bouts[some])
        ended = finish(arena)
        ground.compare([ended[b.number] for b in bouts[some]], wanted[some])
    assert len(set(wanted)) > 4


def test_a_genome_that_cannot_be_decoded_fails_alone(opened):
    ground, arena = opened("a pole")
    bouts = ground.bouts(12, first=50)
    bad = bouts[4].genome.child(Gene(1, 0.5, "block:head"))
    bouts[4] = bouts[4]._replace(genome=bad)
    failed = {}
    arena.add(bouts)
    ended = finish(arena, failed=failed)
    assert set(ended) == set(range(50, 62)) - {54}
    assert "head" in failed[54]


def undisturbed(arena, bouts):
    """In floats too, nothing depends on the place or on who is in the others."""
    arena.add(bouts)
    ended = finish(arena)
    assert len({outcome.score for outcome in ended.values()}) == len(bouts)
    return ended


@pytest.fixture(scope="module")
def recurrent(opened):
    ground, arena = opened("recurrent and continuous")
    bouts = ground.bouts(14, caps=(12, 5, 9), first=50)
    return arena, bouts, undisturbed(arena, bouts)


NUMBERS = count(1000)


@pytest.mark.numerics
@settings(max_examples=10)
@given(data=st.data())
def test_no_order_and_nothing_given_up_changes_an_outcome(recurrent, data):
    arena, bouts, wanted = recurrent
    order = data.draw(st.permutations(bouts))
    new = {bout.number: next(NUMBERS) for bout in bouts}
    given_up_at = st.dictionaries(st.integers(1, 40), st.sets(st.sampled_from([*new])))
    moments = data.draw(given_up_at)
    ended, given_up, turn = {}, set(), 0
    arena.add(bout._replace(number=new[bout.number]) for bout in order)
    while arena.busy:
        note(arena.turn(), ended)
        turn += 1
        leaving = {new[n] for n in moments.get(turn, ())} - ended.keys()
        arena.cancel(leaving)
        given_up |= leaving
    assert ended == {new[n]: wanted[n] for n in new if new[n] not in given_up}


def test_what_waits_in_a_hand_is_played_though_all_before_it_is_given_up():
    ground = Playground(*CASES["a pole"])
    bouts = ground.bouts(12, caps=(50,))
    with ground.arena(hands=1, lanes=1) as arena:
        arena.add(bouts)
        while not (arena.crew.hands[0].spare and arena.under_way()):
            assert not arena.turn().ended
        kept = set(arena.crew.hands[0].spare)
        arena.cancel(set(range(12)) - kept)
        assert set(finish(arena)) == kept


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(crew, "LATE", 0.3)


@pytest.mark.numerics
def test_a_hand_that_is_late_is_not_waited_for(impatient, opened):
    ground, arena = opened("recurrent and continuous")
    bouts = ground.bouts(30, caps=(30,), first=100)
    ended = {}
    wanted = undisturbed(arena, bouts)
    again = [bout._replace(number=bout.number + 100) for bout in bouts]
    arena.add(again)
    while not all(len(arena._held(hand)) > 2 for hand in range(2)):
        if not arena.busy:  # all were played while one of the hands was slow
            ended.clear()
            arena.add(again)
        note(arena.turn(), ended)
    frozen = arena.crew.hands[0]
    os.kill(frozen.process.pid, signal.SIGSTOP)
    while len(ended.keys() | set(arena._held(0))) < 30:
        note(arena.turn(), ended)
    assert len(ended) < 30
    assert frozen is arena.crew.hands[0]
    os.kill(frozen.process.pid, signal.SIGCONT)
    finish(arena, ended)
    assert ended == {number + 100: outcome for number, outcome in wanted.items()}


def troubled(trouble, early):
    options = {"trouble": trouble, "seed": 105, "early": early}
    return Playground("gym", {"id": "Arcade-v0", "options": options}, "mlp", SMALL)


EARLY = pytest.mark.parametrize(
    ("early", "hands"),
    [(False, 2), (True, 1), pytest.param(True, 2, marks=pytest.mark.slow)],
    ids=["at a step", "at the start", "at the start of one of two"],
)


@EARLY
def test_an_environment_that_fails(early, hands):
    ground, failed = troubled("raise", early), {}
    with ground.arena(hands) as arena:
        arena.add(ground.bouts(20))
        ended = finish(arena, failed=failed)
    assert failed == {5: "ValueError: it is broken"}
    assert set(ended) == set(range(20)) - {5}


@EARLY
def test_an_environment_that_ends_its_process(early, hands):
    ground, lost = troubled("SIGKILL", early), {}
    with ground.arena(hands) as arena:
        arena.add(ground.bouts(20))
        ended = finish(arena, lost=lost)
        assert lost == {5: -signal.SIGKILL}
        healthy = [n for n in range(20) if n != 5]
        assert sorted(ended) == healthy
        bouts = ground.bouts(20)
        ground.compare([ended[n] for n in healthy], ground.wanted([bouts[n] for n in healthy]))


def test_an_environment_that_freezes_its_process_takes_nobody_along(impatient):
    ground, ended = troubled("SIGSTOP", early=False), {}
    with ground.arena() as arena:
        arena.add(ground.bouts(20))
        while 5 not in arena.bouts:
            note(arena.turn(), ended)
        while len(ended.keys() | set(arena._held(hand_of(arena, 5)))) < 20:
            note(arena.turn(), ended)
        arena.cancel([5])
        finish(arena, ended)
    assert set(ended) == set(range(20)) - {5}


def hand_of(arena, number):
    return next(h for h in range(len(arena.crew.hands)) if number in arena._held(h))
