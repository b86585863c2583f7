"""What `tasks.check` refuses."""

import itertools
from typing import ClassVar

import jax
import msgspec
import pytest

from germline import policies, tasks
from germline.errors import InputError
from germline.tasks import Outcome

MLP = policies.make("mlp", {"hidden": [2]})


class Sound(msgspec.Struct, frozen=True):
    together: ClassVar[bool] = True
    closed: ClassVar[list[bool]] = []

    length: int = 7

    def space(self):
        return None

    def play(self, players, episodes):
        return [self.outcome(players, episode) for episode in episodes]

    def outcome(self, players, episode):
        weights = jax.tree.leaves(players.policy(episode.player))
        score = float(weights[0].sum()) + episode.seed
        steps = min(episode.cap, self.length)
        return Outcome(score, steps, steps, "c" if steps == episode.cap else "t")

    def close(self):
        self.closed.append(True)


class Restless(Sound, frozen=True):
    calls: ClassVar = itertools.count()

    def outcome(self, players, episode):
        return super().outcome(players, episode)._replace(score=float(next(self.calls)))


class Undefined(Sound, frozen=True):
    def outcome(self, players, episode):
        return super().outcome(players, episode)._replace(score=float("nan"))


class Boundless(Sound, frozen=True):
    def outcome(self, players, episode):
        return super().outcome(players, episode)._replace(score=float("-inf"))


class Silent(Sound, frozen=True):
    def play(self, players, episodes):
        return super().play(players, episodes)[1:]


class Talkative(Sound, frozen=True):
    def play(self, players, episodes):
        return [*super().play(players, episodes), Outcome(0.0, 1, 1, "t")]


class Endless(Sound, frozen=True):
    def outcome(self, players, episode):
        return super().outcome(players, episode)._replace(steps=99)


class Stubborn(Sound, frozen=True):
    def outcome(self, players, episode):
        return super().outcome(players, episode)._replace(steps=self.length)


class Stillborn(Sound, frozen=True):
    def outcome(self, players, episode):
        return super().outcome(players, episode)._replace(steps=0)


class Backward(Sound, frozen=True):
    def outcome(self, players, episode):
        return super().outcome(players, episode)._replace(frames=-1)


class Open(Sound, frozen=True):
    def outcome(self, players, episode):
        return super().outcome(players, episode)._replace(end="x")


class Queued(Sound, frozen=True):
    """The first in the queue does better, whoever it is."""

    def play(self, players, episodes):
        first, *rest = super().play(players, episodes)
        return [first._replace(score=first.score + 1), *rest]


class Ranked(Sound, frozen=True):
    """A player's number is part of its score."""

    def outcome(self, players, episode):
        outcome = super().outcome(players, episode)
        return outcome._replace(score=outcome.score + episode.player)


class Social(Sound, frozen=True):
    """The others in the batch are part of everyone's score."""

    def outcome(self, players, episode):
        outcome = super().outcome(players, episode)
        return outcome._replace(score=outcome.score + len(players))


class Lonely(Sound, frozen=True):
    """On the host, where scores may round differently, but an episode has its length."""

    together: ClassVar[bool] = False

    def outcome(self, players, episode):
        outcome = super().outcome(players, episode)
        return outcome._replace(steps=outcome.steps - (len(players) > 1))


class Growing(Sound, frozen=True):
    def __post_init__(self):
        msgspec.structs.force_setattr(self, "length", self.length + 1)


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(tasks.registry, "_registry", {})
    monkeypatch.setattr(Sound, "closed", [])

    def register(kind):
        tasks.register(kind.__name__.lower())(kind)
        return kind.__name__.lower()

    return register


def test_a_sound_task_passes_and_shows_what_different_seeds_gave(registered):
    outcomes = tasks.check(registered(Sound), {"length": 3}, policy=MLP)
    assert len({outcome.score for outcome in outcomes}) == 4
    assert {outcome.steps for outcome in outcomes} == {3}
    assert tasks.check(Sound(3), policy=MLP) == outcomes


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Restless, "task restless: the same episodes played again went differently"),
        (Undefined, "task undefined: a score is nan, not a number"),
        (Boundless, "task boundless: a score is -inf, not a number"),
        (Silent, "task silent: gave 11 outcomes for 12 episodes"),
        (Talkative, "task talkative: gave 13 outcomes for 12 episodes"),
        (Endless, "task endless: 99 steps with a cap of 40"),
        (Stubborn, "task stubborn: a cap of 1 step was not kept: 7 steps"),
        (Stillborn, "task stillborn: 0 steps with a cap of 40"),
        (Backward, "task backward: -1 frames"),
        (Open, "task open: an end must be one of t, l and c, not 'x'"),
        (Queued, "task queued: the order of players or episodes changes how they go"),
        (Ranked, "task ranked: the order of players or episodes changes how they go"),
        (Social, "task social: an episode goes differently when it is played alone"),
        (Lonely, "task lonely: an episode goes differently when it is played alone"),
        (Growing, "task growing: a file gives other settings back"),
    ],
)
def test_what_would_not_repeat_is_refused(registered, kind, words):
    with pytest.raises(InputError, match=words):
        tasks.check(registered(kind), policy=MLP)


@pytest.mark.parametrize("kind", [Sound, Undefined])
def test_a_task_is_closed_whether_it_passes_or_not(registered, kind):
    name = registered(kind)
    try:
        tasks.check(name, policy=MLP)
    except InputError:
        assert kind is Undefined
    assert Sound.closed == [True]


def test_a_task_that_calls_policies_as_it_likes_is_checked_with_one(registered):
    with pytest.raises(InputError, match="task sound: give a policy to check it with"):
        tasks.check(registered(Sound))


def test_a_policy_that_does_not_fit_is_refused():
    with pytest.raises(InputError, match="policy mlp: has 3 outputs, the task takes 2"):
        tasks.check("gym", {"id": "CartPole-v1"}, policy=policies.make("mlp", {"outputs": 3}))
    with pytest.raises(InputError, match=r"policy mlp: sees \[4\], the task shows \[3\]"):
        tasks.check("gym", {"id": "Pendulum-v1"}, policy=policies.make("mlp", {"outputs": 1}))
    spec = policies.make("mlp", {"inputs": 3, "outputs": 1})
    with pytest.raises(InputError, match="head: is discrete, the task's actions are continuous"):
        tasks.check("gym", {"id": "Pendulum-v1"}, policy=spec)


def test_a_task_must_be_registered(registered):
    with pytest.raises(InputError, match="task: Sound is not registered"):
        tasks.check(Sound(), policy=MLP)
    registered(Sound)
    with pytest.raises(InputError, match=r"task: 'sund' is not registered; did you mean sound\?"):
        tasks.check("sund", policy=MLP)
