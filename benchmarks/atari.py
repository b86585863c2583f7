"""Frostbite on one core while evolving: how near Germline comes to what emulator and network allow.

    python benchmarks/atari.py [--cases ...] [--no-evotorch]

Every case plays whole requests, the way a worker does, with decoding and episode starts. Beside it,
in the same process and in turns, the parts alone: the bare emulator doing the very actions that
were played, nothing drawn; the emulator with its screens drawn and resized; the forward pass on
observations of that game, in the batch of the case. The ceiling is what these would give one after
the other without anything else: 1 / (1/emulator + 1/forward), `bare` with the bare emulator and
`seen` with the one that gives observations. Shares are of the time of a step. EvoTorch's GymNE
plays the same game with the same network through Gymnasium's wrappers.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

GAME, STEPS, ROUNDS, INDIVIDUALS, SIGMA = "frostbite", 1600, 11, 8, 0.002
Numbers = dict[str, float]

# name → (padding, arithmetic, operator, siblings, episodes of an individual)
CASES: dict[str, tuple[str, str, str, int, int]] = {
    "paper exact": ("same", "exact", "gaussian", 0, 1),
    "paper float": ("same", "float32", "gaussian", 0, 1),
    "paper float, 8 siblings": ("same", "float32", "lowrank:1", 8, 1),
    "paper exact, elite": ("same", "exact", "gaussian", 0, 30),
    "paper float, elite": ("same", "float32", "gaussian", 0, 30),
    "valid exact": ("valid", "exact", "gaussian", 0, 1),
    "valid float": ("valid", "float32", "gaussian", 0, 1),
    "valid float, 8 siblings": ("valid", "float32", "lowrank:1", 8, 1),
    "valid exact, elite": ("valid", "exact", "gaussian", 0, 30),
    "valid float, elite": ("valid", "float32", "gaussian", 0, 30),
}


class Clock:
    """Seconds spent in the methods it watches, by name."""

    def __init__(self) -> None:
        self.spent: Numbers = {}

    @contextmanager
    def watching(self, *methods: tuple[type, str, str]) -> Iterator[None]:
        """Time methods of classes while the context lasts."""
        kept = [(kind, name, getattr(kind, name)) for kind, name, _ in methods]
        for (kind, name, label), (_, _, method) in zip(methods, kept, strict=True):
            setattr(kind, name, self._timed(method, label))
        try:
            yield
        finally:
            for kind, name, method in kept:
                setattr(kind, name, method)

    def _timed(self, method: Callable[..., Any], label: str) -> Callable[..., Any]:
        def timed(*given: Any, **named: Any) -> Any:  # noqa: ANN401
            start = time.perf_counter()
            try:
                return method(*given, **named)
            finally:
                passed = time.perf_counter() - start
                self.spent[label] = self.spent.get(label, 0.0) + passed

        return timed


def seconds(work: Callable[[], object]) -> float:
    """How long something takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def germline(case: str) -> Numbers:
    """One case, in microseconds of a step."""
    import jax
    import numpy as np

    from germline import policies
    from germline.blobs import BlobCache
    from germline.evaluate import Evaluator
    from germline.files import TaskRef
    from germline.genome import Birth, Gene, Genome
    from germline.messages import Key, Problem, Request
    from germline.tasks.atari import Atari, Console
    from germline.tasks.on_host import lockstep
    from germline.tasks.on_host.lanes import PlainEyes, Stage
    from germline.tasks.players import Players
    from germline.tasks.protocols import Episode

    padding, arithmetic, operator, siblings, episodes = CASES[case]
    spec: Any = policies.make("dqn", {"padding": padding})
    if arithmetic == "exact":
        spec = policies.exact(spec, sigma=SIGMA)
    policy = policies.reference("dqn", spec)
    problem = Problem(TaskRef("atari", {"game": GAME}), policy, arithmetic, (), siblings)  # type: ignore[arg-type]
    evaluator = Evaluator(problem, BlobCache())
    parent = Genome(policy, Birth(3))
    count = 1 if episodes > 1 else INDIVIDUALS
    cap = STEPS // (count * episodes)
    requests = [
        Request(
            Key("", 0, 0, number),
            parent.child(Gene(number, SIGMA, operator)),
            tuple(range(number, number + episodes)),
            cap,
        )
        for number in range(count)
    ]

    taken: list[tuple[int, list[int]]] = []  # the seed and the actions of every episode

    class Recorder(Console):
        def start(self, episode: Episode, into: Any) -> None:  # noqa: ANN401
            taken.append((episode.seed, []))
            self.list = taken[-1][1]
            super().start(episode, into)

        def step(self, action: int, into: Any) -> Any:  # noqa: ANN401
            self.list.append(action)
            return super().step(action, into)

    stage = Stage(lambda: Recorder(Atari(GAME)))
    players, every = evaluator._prepared(requests)
    eyes = stage.lane(0).eyes
    lockstep.play(stage, evaluator.task.space(), eyes, players, every, 16)  # type: ignore[arg-type]
    steps = sum(len(actions) for _, actions in taken)
    frames = sum(sum(result.frames) for result in evaluator.evaluate(requests))  # type: ignore[union-attr]

    console = Console(Atari(GAME))
    shape, dtype = eyes.shown()
    shown = np.zeros(shape, dtype)
    see = jax.jit(eyes.see)

    def emulate(*, drawn: bool) -> None:
        act, over = console.ale.act, console.ale.game_over
        for seed, actions in taken:
            console.start(Episode(0, seed, None), shown)
            sight: Any = eyes.sight()
            for action in actions:
                if drawn:
                    console.step(action, shown)
                    sight = see(shown, sight)[1]
                    continue
                code = console.actions[action]
                for _ in range(4):
                    act(code)
                    if over():
                        break

    # Observations as they come in an episode, one lane's worth for every lane.
    seed, actions = max(taken, key=lambda episode: len(episode[1]))
    console.start(Episode(0, seed, None), shown)
    seen, sight = [], eyes.sight()
    for action in actions:
        sight = see(shown, sight)[1]
        seen.append(np.asarray(sight))
        console.step(action, shown)
    width = siblings or min(16, 1 << (episodes - 1).bit_length())
    batches = [
        np.stack([seen[(i * width + j) % len(seen)] for j in range(width)])
        for i in range(max(4, 160 // width))
    ]
    seats = [n % count for n in range(width)] if siblings else [0] * width
    network = players.together(seats)
    space = evaluator.task.space()
    assert space is not None
    plain = PlainEyes(space)
    forward = lockstep._acting(space, plain, network)
    memory = lockstep._beginning(plain, network, width)
    fresh = np.zeros(width, bool)

    def think() -> None:
        for batch in batches:
            np.asarray(forward(batch, memory, fresh)[0])

    see_all = jax.jit(jax.vmap(eyes.see))
    pictures, start = np.stack([shown] * width), np.stack([eyes.sight()] * width)

    def preprocess() -> None:
        sight: Any = start
        for _ in range(64):
            sight = see_all(pictures, sight)[1]
        np.asarray(sight)

    for work in (think, preprocess):
        work()
    rows: list[Numbers] = []
    for _ in range(ROUNDS):
        rows.append(
            {
                "whole": seconds(lambda: evaluator.evaluate(requests)) / steps,
                "bare": seconds(lambda: emulate(drawn=False)) / steps,
                "seen": seconds(lambda: emulate(drawn=True)) / steps,
                "forward": seconds(think) / (len(batches) * width),
                "see": seconds(preprocess) / (64 * width),
            }
        )
    found = {name: statistics.median(row[name] for row in rows) * 1e6 for name in rows[0]}
    # Ratios within a round, where all parts had the same neighbours on the machine.
    for name in ("seen", "bare"):
        ratios = [(row[name] + row["forward"]) / row["whole"] for row in rows]
        found[f"of {name}"] = statistics.median(ratios)
    found["of emulator"] = statistics.median(row["bare"] / row["whole"] for row in rows)

    clock = Clock()
    lanes = [stage.lane(i) for i in range(width)]
    timed = [_Watched(lane.ale, clock) for lane in lanes]
    for lane, ale in zip(lanes, timed, strict=True):
        lane.ale, lane.take = ale, clock._timed(lane.take, "take")
    with clock.watching(
        (lockstep._Table, "_act", "act"),
        (Players, "together", "decode"),
        (Recorder, "start", "start"),
    ):
        whole = seconds(
            lambda: lockstep.play(stage, space, eyes, players, every, 16)  # type: ignore[arg-type]
        )
    spent = {name: value / steps * 1e6 for name, value in clock.spent.items()}
    # Resizing is part of the compiled step, so its share is that of doing it alone.
    see_share = found["see"]
    parts = {
        "emulator": spent["ale"],
        "preprocessing": spent["take"] + see_share,
        "forward": spent["act"] - spent["decode"] - see_share,
        "start": spent["start"] + spent["decode"],
    }
    total = whole / steps * 1e6
    parts["else"] = total - sum(parts.values())
    shares = {f"share {name}": value / total for name, value in parts.items()}
    return {**found, "frames": frames / steps, **shares}


class _Watched:
    """An emulator whose `act` is timed."""

    def __init__(self, ale: Any, clock: Clock) -> None:  # noqa: ANN401
        self.inner = ale
        self.act = clock._timed(ale.act, "ale")

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self.inner, name)


def evotorch(padding: str) -> Numbers:
    """GymNE in one process: the same game through Gymnasium's wrappers, the same network."""
    import logging

    import ale_py
    import gymnasium
    import torch
    from evotorch.neuroevolution import GymNE
    from evotorch.tools import set_default_logger_config
    from torch import nn

    set_default_logger_config(logger_level=logging.WARNING, override=True)
    torch.set_num_threads(1)
    gymnasium.register_envs(ale_py)

    def environment(**options: Any) -> Any:  # noqa: ANN401
        env = gymnasium.make("ALE/Frostbite-v5", frameskip=1, repeat_action_probability=0.0)
        env = gymnasium.wrappers.AtariPreprocessing(env, noop_max=30, frame_skip=4)
        return gymnasium.wrappers.FrameStackObservation(env, 4)

    class Dqn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            same = padding == "same"
            pads = [nn.ZeroPad2d(p) if same else nn.Identity() for p in ((2, 2, 2, 2), 1, 1)]
            if same:
                pads[1] = nn.ZeroPad2d((1, 2, 1, 2))
            self.features = nn.Sequential(
                pads[0],
                nn.Conv2d(4, 32, 8, 4),
                nn.ReLU(),
                pads[1],
                nn.Conv2d(32, 64, 4, 2),
                nn.ReLU(),
                pads[2],
                nn.Conv2d(64, 64, 3, 1),
                nn.ReLU(),
                nn.Flatten(0),
                nn.Linear(64 * (11 * 11 if same else 7 * 7), 512),
                nn.ReLU(),
                nn.Linear(512, 18),
            )

        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            return self.features(obs.reshape(4, 84, 84) / 255)  # type: ignore[no-any-return]

    problem = GymNE(environment, Dqn, num_actors=None, episode_length=200)
    batch = problem.generate_batch(2)
    problem.evaluate(batch)
    batch = problem.generate_batch(6)
    before = problem.status["total_interaction_count"]
    passed = seconds(lambda: problem.evaluate(batch))
    return {"whole": passed / (problem.status["total_interaction_count"] - before) * 1e6}


def inside(work: str) -> Numbers:
    """Measure in a process of its own, held to one core."""
    from germline import xla

    environment = {**os.environ, **xla.cache_settings(), **xla.single_threaded()}
    environment |= {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, __file__, "--inside", work]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if run.returncode:
        raise SystemExit(f"{work}: {run.stderr[-2000:]}")
    found: Numbers = json.loads(run.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print a table of speeds, one of shares, and the ratio to EvoTorch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--no-evotorch", action="store_true")
    parser.add_argument("--inside")
    options = parser.parse_args()
    if options.inside:
        padding = options.inside.removeprefix("evotorch ")
        work = evotorch(padding) if padding != options.inside else germline(options.inside)
        print(json.dumps(work))
        return
    print(f"{GAME}, one core, microseconds of a step; about {STEPS:,} steps a round")
    print(
        f"{'':26}{'frames/s':>9}{'whole':>7}{'bare':>6}{'seen':>6}{'forw.':>7}"
        f"{'of seen':>9}{'of bare':>9}{'of emulator':>13}   shares"
    )
    whole: Numbers = {}
    for case in options.cases:
        row = inside(case)
        whole[case] = row["whole"]
        shares = "  ".join(f"{k[6:]} {v:.0%}" for k, v in row.items() if k.startswith("share "))
        print(
            f"{case:26}{row['frames'] / row['whole'] * 1e6:>9,.0f}{row['whole']:>7.0f}"
            f"{row['bare']:>6.0f}{row['seen']:>6.0f}{row['forward']:>7.0f}"
            f"{row['of seen']:>9.2f}{row['of bare']:>9.2f}{row['of emulator']:>13.2f}   {shares}",
            flush=True,
        )
    if options.no_evotorch:
        return
    for padding, case in (("same", "paper"), ("valid", "valid")):
        theirs = inside(f"evotorch {padding}")["whole"]
        ratios = [f"{name} {theirs / whole[name]:.1f}x" for name in whole if name.startswith(case)]
        print(f"EvoTorch GymNE, {case:6}{4e6 / theirs:>9,.0f} frames/s   {'  '.join(ratios)}")


if __name__ == "__main__":
    main()
