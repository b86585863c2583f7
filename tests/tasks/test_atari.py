"""Atari on real ROMs: the protocol detail by detail, and scores that depend on the seed alone."""

import os
import subprocess
import sys
from fractions import Fraction
from functools import cache
from pathlib import Path

import ale_py
import jax
import numpy as np
import pytest
from ale_py import roms
from ale_py.vector_env import AtariVectorEnv

from germline import Birth, Decoder, Gene, Genome, draws, policies, tasks
from germline.draws import Purpose
from germline.errors import InputError
from germline.tasks.atari import Atari, Console
from germline.tasks.players import Players
from germline.tasks.protocols import Episode

GAMES = ["frostbite", "skiing", "atlantis", "venture", "enduro", "asteroids"]
PAPER = {"skip": 4, "frames": 2, "stack": 4, "noops": 30, "newest": "last", "before": "black"}


def fresh(game):
    """An emulator of the test's own, that has played nothing yet."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", 1)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(str(roms.get_rom_path(game)))
    ale.reset_game()
    return ale


def shares(source, target):
    """Row i: how much of each source pixel lies in target pixel i, as fractions of it."""
    step = Fraction(source, target)
    return [
        [
            max(Fraction(0), min((i + 1) * step, Fraction(j + 1)) - max(i * step, Fraction(j)))
            / step
            for j in range(source)
        ]
        for i in range(target)
    ]


@cache
def whole_shares(source, target):
    return np.array([[float(int(share * 840)) for share in row] for row in shares(source, target)])


def resized(picture):
    """84×84 by area: the mean of what lies in each pixel, halves up, in whole numbers."""
    rows, columns = whole_shares(picture.shape[0], 84), whole_shares(picture.shape[1], 84)
    sums = (rows @ picture.astype(np.float64) @ columns.T).astype(np.int64)
    return ((2 * sums + 840**2) // (2 * 840**2)).astype(np.uint8)


def by_the_protocol(game, seed, actions, **changes):
    """The observations and rewards of an episode, by a plain reading of the paper's protocol."""
    rules = {**PAPER, **changes}
    ale = fresh(game)
    legal = ale.getMinimalActionSet()
    if rules["noops"]:
        bits = draws.draw(seed, Purpose.NOOPS, 0, np.array([0]))
        for _ in range(1 + int(draws.below(rules["noops"], bits)[0])):
            ale.act(0)
    picture = resized(ale.getScreenGrayscale())
    start = picture if rules["before"] == "first" else np.zeros((84, 84), np.uint8)
    stack = [start] * (rules["stack"] - 1) + [picture]
    rewards, seen = [], []
    for action in [None, *actions]:
        if action is not None:
            screens, reward = [], 0
            for _ in range(rules["skip"]):
                reward += ale.act(legal[action])
                screens.append(ale.getScreenGrayscale())
            rewards.append(reward)
            stack = [*stack[1:], resized(np.max(screens[-rules["frames"] :], axis=0))]
        order = stack if rules["newest"] == "last" else stack[::-1]
        seen.append(np.stack(order, axis=-1))
    return np.stack(seen), rewards


@cache
def compiled(eyes):
    return jax.jit(eyes.see)


def played(console, seed, actions, cap=None):
    """The observations and rewards that the task gives."""
    eyes, see = console.eyes, compiled(console.eyes)
    shape, dtype = eyes.shown()
    shown, sight = np.zeros(shape, dtype), eyes.sight()
    console.start(Episode(0, seed, cap), shown)
    seen, rewards = [], []
    for action in [None, *actions]:
        if action is not None:
            before = console.score
            console.step(action, shown)
            rewards.append(console.score - before)
        obs, sight = see(shown, sight)
        seen.append(np.asarray(obs))
    return np.stack(seen), rewards


@cache
def some_actions(game, count):
    number = len(fresh(game).getMinimalActionSet())
    return np.random.default_rng(0).integers(0, number, count).tolist()


@pytest.fixture(scope="module")
def frostbite():
    """A console that several tests play on: an emulator takes long to start."""
    return Console(Atari("frostbite"))


@pytest.mark.numerics
@pytest.mark.parametrize("game", GAMES)
def test_an_episode_is_what_the_protocol_says(game):
    console = Console(Atari(game))
    actions = some_actions(game, 60)
    # After another episode, so that a beginning is really a beginning.
    for seed in (5, 11):
        found, rewards = played(console, seed, actions)
        wanted, points = by_the_protocol(game, seed, actions)
        assert np.array_equal(found, wanted)
        assert rewards == points


@pytest.fixture(scope="module")
def seaquest():
    """Actions, and what is seen of them."""
    actions = some_actions("seaquest", 60)
    return actions, played(Console(Atari("seaquest")), 11, actions)[0]


@pytest.mark.parametrize(
    "change",
    [
        {"skip": 3},
        {"frames": 1},
        {"frames": 3},
        {"noops": 0},
        {"noops": 29},
        {"newest": "first"},
        {"before": "first"},
    ],
    ids=str,
)
def test_any_other_protocol_would_be_noticed(change, seaquest):
    actions, found = seaquest
    assert not np.array_equal(found, by_the_protocol("seaquest", 11, actions, **change)[0])


def test_observations_are_those_of_the_emulators_own_vector_up_to_rounding():
    actions = some_actions("frostbite", 80)
    found, _ = played(Console(Atari("frostbite", noops=0)), 1, actions)
    env = AtariVectorEnv("frostbite", 1, noop_max=0, use_fire_reset=False, reward_clipping=False)
    seen = [env.reset(seed=1)[0][0]]
    seen += [env.step(np.array([action]))[0][0] for action in actions]
    theirs = np.stack(seen).transpose(0, 2, 3, 1).astype(int)
    assert np.abs(theirs - found).max() <= 1
    assert np.mean(theirs != found) < 0.01


def test_no_ops_are_1_to_30_and_follow_from_the_seed(frostbite):
    console = frostbite
    shown = np.zeros(*console.eyes.shown())
    counts = []
    for seed in range(300):
        console.start(Episode(0, seed, None), shown)
        counts.append(console.ale.getEpisodeFrameNumber())
    assert set(counts) == set(range(1, 31))
    console.start(Episode(0, 7, None), shown)
    assert console.ale.getEpisodeFrameNumber() == counts[7]


def test_a_lost_life_is_not_the_end_and_points_are_not_clipped(frostbite):
    console = frostbite
    shown = np.zeros(*console.eyes.shown())
    console.start(Episode(0, 3, None), shown)
    down = console.actions.index(ale_py.Action.DOWN)
    lives, gains, outcome = [console.ale.lives()], [], None
    while outcome is None:
        before = console.score
        outcome = console.step(down, shown)
        gains.append(console.score - before)
        lives.append(console.ale.lives())
    assert outcome.end == "t"
    assert lives[0] == 4
    assert sorted(set(lives)) == [0, 1, 2, 3, 4]
    assert max(gains) >= 10
    assert outcome.score == sum(gains)


def test_an_episode_of_one_life_ends_with_it(frostbite):
    console = Console(Atari("frostbite", episodic_life=True))
    shown = np.zeros(*console.eyes.shown())
    steps = []
    for one in (console, frostbite):
        one.start(Episode(0, 3, None), shown)
        outcome = None
        while outcome is None:
            outcome = one.step(5, shown)
        assert outcome.end == "t"
        steps.append(outcome.steps)
    assert console.ale.lives() == 3
    assert steps[0] < steps[1]


def test_frames_are_the_emulators_own(frostbite):
    console = frostbite
    shown = np.zeros(*console.eyes.shown())
    short = 0
    for seed in range(3):
        console.start(Episode(0, seed, None), shown)
        first, outcome = console.ale.getEpisodeFrameNumber(), None
        while outcome is None:
            outcome = console.step(5, shown)
        assert outcome.frames == console.ale.getEpisodeFrameNumber() - first
        assert 4 * (outcome.steps - 1) < outcome.frames <= 4 * outcome.steps
        short += outcome.frames < 4 * outcome.steps
    assert short  # the last action was cut short at least once


@pytest.mark.parametrize(("limit", "cap", "end"), [(9, None, "l"), (9, 5, "c"), (5, 5, "l")])
def test_the_limit_and_the_cap_are_in_actions(limit, cap, end):
    console = Console(Atari("frostbite", limit=limit))
    shown = np.zeros(*console.eyes.shown())
    console.start(Episode(0, 3, cap), shown)
    outcome = None
    while outcome is None:
        outcome = console.step(0, shown)
    assert (outcome.steps, outcome.end) == (min(limit, cap or limit), end)
    assert outcome.frames == 4 * outcome.steps


@pytest.mark.parametrize(
    ("game", "minimal", "legal"),
    [("frostbite", 18, 18), ("skiing", 3, 9), ("atlantis", 4, 18), ("enduro", 9, 18)],
)
def test_actions_are_those_the_game_knows_or_all(game, minimal, legal):
    assert Atari(game).space().outputs == minimal
    assert Atari(game, actions="full").space().outputs == legal
    assert Atari(game).space().observation == (84, 84, 4)


def test_sticky_actions():
    def done(sticky, seed):
        """The actions that reach the emulator, frame by frame."""
        console = Console(Atari("frostbite", sticky=sticky))
        shown = np.zeros(*console.eyes.shown())
        console.start(Episode(0, seed, None), shown)
        taken = []
        for action in range(1, 17):
            for _ in range(20):
                taken.append((action, console.actions.index(console._sticky(action_of(action)))))
        return taken

    actions = fresh("frostbite").getMinimalActionSet()

    def action_of(number):
        return actions[number]

    assert all(got == 0 for _, got in done(1.0, 1))
    late = [chosen != got for chosen, got in done(0.25, 1)]
    assert 0 < sum(late) < 30  # after each change of mind, four thirds of a frame on average
    assert done(0.25, 1) == done(0.25, 1) != done(0.25, 2)


def test_sticky_actions_play_other_episodes(frostbite):
    actions = some_actions("frostbite", 40)
    plain, _ = played(frostbite, 1, actions)
    sticky, _ = played(Console(Atari("frostbite", sticky=0.25)), 1, actions)
    again, _ = played(Console(Atari("frostbite", sticky=0.25)), 1, actions)
    assert np.array_equal(sticky, again)
    assert not np.array_equal(sticky, plain)


def test_a_random_number_of_frames():
    console = Console(Atari("frostbite", skip=(2, 4), noops=0))
    shown = np.zeros(*console.eyes.shown())

    def counts(seed):
        console.start(Episode(0, seed, None), shown)
        numbers = [console.ale.getEpisodeFrameNumber()]
        for _ in range(60):
            console.step(0, shown)
            numbers.append(console.ale.getEpisodeFrameNumber())
        return np.diff(numbers).tolist()

    assert set(counts(1)) == {2, 3, 4}
    assert counts(1) == counts(1) != counts(2)
    with pytest.raises(InputError, match="from the fewest to the most"):
        Atari("frostbite", skip=(4, 2))


def test_colours_at_full_size():
    console = Console(
        Atari("frostbite", color="rgb", size=(210, 160), pool=False, stack=1, noops=0)
    )
    found, _ = played(console, 1, [1, 2, 3])
    ale = fresh("frostbite")
    legal = ale.getMinimalActionSet()
    assert np.array_equal(found[0], ale.getScreenRGB())
    for action, seen in zip([1, 2, 3], found[1:], strict=True):
        for _ in range(4):
            ale.act(legal[action])
        assert np.array_equal(seen, ale.getScreenRGB())


def test_other_sizes():
    space = Atari("frostbite", size=(42, 42), stack=1).space()
    assert space.observation == (42, 42, 1)
    assert Atari("frostbite", size=(64, 60), color="rgb").space().observation == (64, 60, 12)
    found, _ = played(Console(Atari("frostbite", size=(105, 80), stack=2)), 1, [1])
    halves = Console(Atari("frostbite", size=(210, 160), stack=2))
    large, _ = played(halves, 1, [1])
    quarters = large.reshape(2, 105, 2, 80, 2, 2).astype(int).sum(axis=(2, 4))
    assert np.array_equal(found, (quarters + 2) // 4)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"game": "frostbit"}, "did you mean frostbite"),
        ({"game": "no_such_game"}, "is no game of ale-py"),
        ({"game": "../frostbite"}, "game"),
        ({"game": "frostbite", "skip": 0}, "skip"),
        ({"game": "frostbite", "sticky": 1.5}, "sticky"),
        ({"game": "frostbite", "size": [84, 4096]}, "size"),
        ({"game": "frostbite", "speed": 2}, "speed"),
    ],
)
def test_what_is_wrong_is_said(settings, words):
    with pytest.raises(InputError, match=words):
        tasks.make("atari", settings).space()


def small_players(arithmetic="exact", siblings=0, count=3, game="frostbite"):
    actions = Atari(game).space().outputs
    sizes = {"filters": [4], "kernels": [8], "strides": [4], "hidden": []}
    spec = policies.make("conv", sizes | {"actions": actions})
    if arithmetic == "exact":
        spec = policies.exact(spec, sigma=0.1, genes=1)
    birth = Genome(policies.reference("conv", spec), Birth(1))
    operator = "lowrank:1" if siblings else "gaussian"
    genomes = [birth.child(Gene(i, 0.1, operator)) for i in range(count)]
    return Players(spec, Decoder(spec.layout()), genomes, arithmetic, None, siblings)


def test_a_return_depends_on_the_genome_and_the_seed_alone():
    seeds = range(4)
    players = small_players(game="asteroids")
    episodes = [Episode(1, seed, 60) for seed in seeds]
    alone = [Atari("asteroids", lanes=1).play(players, [episode])[0] for episode in episodes]
    assert len({outcome.score for outcome in alone}) > 1
    for lanes in (1, 2, 16):
        task = Atari("asteroids", lanes=lanes)
        mates = [Episode(player, seed, 60) for seed in seeds for player in (0, 1)]
        assert task.play(players, mates)[1::2] == alone


@pytest.mark.numerics
@pytest.mark.slow
def test_siblings_play_the_same_in_any_company():
    players = small_players("float32", siblings=4, count=6)
    task = Atari("frostbite")
    every = [Episode(player, seed, 60) for player in range(6) for seed in (1, 2)]
    together = task.play(players, every)
    assert together == task.play(players, every)
    for player in (0, 5):
        alone = task.play(players, [Episode(player, seed, 60) for seed in (1, 2)])
        assert alone == together[2 * player : 2 * player + 2]
    single = [task.play(players, [episode])[0] for episode in every[4:8]]
    assert single == together[4:8]


SCRIPT = """
from germline import tasks
from test_atari import small_players
from germline.tasks.protocols import Episode
task = tasks.make("atari", {"game": "frostbite"})
print(task.play(small_players(), [Episode(2, seed, 150) for seed in range(3)]))
"""


@pytest.mark.slow
def test_threads_change_nothing():
    answers = set()
    for flags in ("", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"):
        environment = {**os.environ, "XLA_FLAGS": flags}
        environment["PYTHONPATH"] = str(Path(__file__).parent)
        command = [sys.executable, "-c", SCRIPT]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        answers.add(done.stdout)
    assert len(answers) == 1


def test_what_is_filmed_is_what_is_played():
    task, players = Atari("frostbite"), small_players()
    shots = []
    outcome = task.film(players, Episode(0, 5, 40), shots.append, drawn=True)
    assert outcome == task.play(players, [Episode(0, 5, 40)])[0]
    assert [shot.step for shot in shots] == list(range(41))
    assert shots[-1].end == "c"
    assert shots[-1].score == outcome.score
    assert {shot.picture.shape for shot in shots} == {(210, 160, 3)}
    assert len({shot.picture.tobytes() for shot in shots}) > 5
    assert shots[0].pace == 15


def test_a_lost_life_is_noticed_after_one_was_won():
    console = Console(Atari("frostbite", episodic_life=True))

    class Ale:
        counts = iter([5, 5, 4])

        def lives(self):
            return next(self.counts)

    console.lives, console.ale = 4, Ale()
    assert [console._lost() for _ in range(3)] == [False, False, True]


def test_who_was_not_born_by_a_low_rank_mutation_plays_as_without_siblings():
    players = small_players("float32", siblings=4, count=2)
    parent = players.genomes[0]
    players.genomes = [parent.child(Gene(7, 0.1)), parent.child(Gene(8, 0.1, "lowrank:1")), parent]
    found = Atari("frostbite").play(players, [Episode(n, 3, 30) for n in (0, 1, 2)])
    assert [outcome.steps for outcome in found] == [30, 30, 30]
    assert [players.shares(number) for number in range(3)] == [False, True, True]
    plain = small_players("float32", count=2)
    plain.genomes = players.genomes
    assert found[0] == Atari("frostbite").play(plain, [Episode(0, 3, 30)])[0]
