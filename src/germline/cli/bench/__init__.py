"""How fast this machine is at each part of a run, and what to set: `germline doctor --bench`.

parts   the parts of a run, each measured alone
"""

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

from germline import device as devices
from germline.cli.bench import parts
from germline.cli.bench.parts import Job
from germline.device import Device
from germline.errors import InputError
from germline.files import Arithmetic
from germline.messages import Evaluation, Key, Problem, Request

SECONDS = 3.0  # for which emulators, and each way to play, are measured
PATIENCE = 15.0  # seconds after the first answer in which an engine has compiled what it needs
NETWORKS = 512  # computed at once on an accelerator, if it has room for them
TRIED = (2, 4, 8)  # slots for each core beside an accelerator
SHORTEST, LONGEST = 125, 375  # steps of the episodes that are played
ALIKE = 0.97  # of the fastest: no difference to rely on
FASTER = 1.2  # floats must be, to make up for a lineage that holds on one kind of machine
FLOATS: tuple[Arithmetic, ...] = ("float32", "bfloat16")

Rates = Mapping[tuple[Arithmetic, int], float]


def measured(
    seconds: float = SECONDS,
    *,
    device: Device = "auto",
    networks: int = NETWORKS,
    together: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, dict[str, Any]]:
    """Measure all parts, one after another; `say` hears which is next.

    `together` is to work as on an accelerator wherever that is, with up to `networks` at once.
    """
    from germline.device import cores

    platform = devices.choose(device)
    wide = together or platform != "cpu"
    unit = "slots" if wide else "processes"
    problems, note = _problems()
    usual = next(iter(problems))
    task = problems[usual].task
    game = task.settings.get("game") or task.settings["id"]

    say(f"emulator: {game}, one core and all")
    one, every = parts.emulators(task, seconds, cores())
    found: dict[str, Any] = {}
    forward: dict[str, float] = {}
    for arithmetics in (("exact",), FLOATS):
        say(f"decode and forward: {' and '.join(arithmetics)}")
        job = Job("networks", seconds / 3, None, arithmetics, networks if wide else 1)
        found |= parts.networks(job, platform)
        forward |= found["forward"]
    rates: dict[tuple[Arithmetic, int], float] = {}

    def play(arithmetic: Arithmetic, number: int) -> None:
        say(f"end to end: {arithmetic}, {number} {unit}")
        slots = number if wide else None
        rates[arithmetic, number] = _played(problems[arithmetic], platform, slots, seconds)

    for lanes in TRIED if wide else (1,):
        play(usual, lanes * cores())
    enough = ALIKE * max(rates.values())
    number = next(number for (_, number), rate in rates.items() if rate >= enough)
    if usual == "exact":
        play(max(FLOATS, key=lambda name: forward[name]), number)
    return {
        "emulator": {
            "game": game,
            **({"atari": note} if note else {}),
            "one_core_frames_per_second": one,
            "all_cores_frames_per_second": every,
        },
        "decode": found["decode"],
        "forward": {
            "networks": f"{found['networks']} at once" if wide else "one, on a core",
            **{f"{arithmetic}_per_second": rate for arithmetic, rate in forward.items()},
        },
        "end_to_end": {
            "game": f"{game}, in frames per second",
            **{f"{arithmetic}_{n}_{unit}": rate for (arithmetic, n), rate in rates.items()},
        },
        "recommendation": recommended(rates, number, every, wide=wide),
    }


def _problems() -> tuple[dict[Arithmetic, Problem], str]:
    """What is played, in each arithmetic, the usual one first; and a word if it is no game."""
    from germline import presets
    from germline.run import spec as specs

    try:
        return {
            arithmetic: specs.resolve(presets.read("frostbite", {"arithmetic": arithmetic})).problem
            for arithmetic in ("exact", *FLOATS)
        }, ""
    except InputError as error:
        small = {
            "task": {"name": "gym", "id": "CartPole-v1"},
            "policy": {"name": "mlp", "hidden": [32]},
            "algorithm": {"name": "ga"},
        }
        return {"float32": specs.resolve(specs.parse(small)).problem}, str(error)


def _played(problem: Problem, platform: str, slots: int | None, seconds: float) -> float:
    """Frames a second of short episodes, by the processes that a run would have."""
    from germline.backends.processes import Processes

    device: Device = "cpu" if platform == "cpu" else "auto"
    with Processes(device=device, slots=slots, together=slots is not None) as backend:
        backend.open(problem)
        requests = _requests(problem)
        ahead = 2 * backend.count if slots is None else 3 * slots
        for _ in range(ahead):
            backend.submit([next(requests)])
        answers, frames, first, begun = 0, 0, 0.0, 0.0
        known: set[str] = set()
        while True:
            for event in backend.results(0.2):
                if not isinstance(event, Evaluation):
                    raise InputError(f"doctor: an individual was not played: {event.reason}")
                answers, frames = answers + 1, frames + sum(event.frames)
                known.add(event.worker)
                backend.submit([next(requests)])
            now = time.perf_counter()
            first = first or (now if answers else 0.0)
            if begun and frames and now > begun + seconds:
                return frames / (now - begun)
            # Counted from when everyone is at work and the first episodes are over.
            steady = answers >= ahead and len(known) == backend.count
            if not begun and first and (steady or now > first + PATIENCE):
                begun, frames = now, 0


def _requests(problem: Problem) -> Iterator[Request]:
    """Children of twenty parents without end, whose episodes are not over at the same time."""
    from germline.genome import Birth, Gene, Genome

    parents = [Genome(problem.policy, Birth(seed)) for seed in range(20)]
    for number in count():
        genome = parents[number % len(parents)].child(Gene(number, 0.002))
        cap = SHORTEST + number * 89 % (LONGEST - SHORTEST)
        yield Request(Key("bench", 0, 0, number), genome, (number,), cap)


def recommended(rates: Rates, number: int, emulators: float, *, wide: bool) -> dict[str, Any]:
    """What to set, with the figures that say so."""
    (usual, rate), *others = ((a, rate) for (a, n), rate in rates.items() if n == number)
    speed = f"{rate:,.0f} frames a second, {rate / emulators:.0%} of the emulators alone"
    why = [f"Leave it at one process per core: {speed}."]
    if wide:
        tried = ", ".join(f"{n} give {r:,.0f}" for (a, n), r in rates.items() if a == usual)
        why = [f"Set backend.slots = {number}: {speed} ({tried})."]
    arithmetic = usual
    for floats, found in others:
        times = f"{floats} is {found / rate:.2f} times as fast as {usual}"
        if found > FASTER * rate:
            arithmetic, rate = floats, found
            kept = "but floats give the same lineage on one kind of machine only"
        else:
            kept = f"and {usual} gives the same lineage on every machine"
        why.append(f'Set arithmetic = "{arithmetic}": {times}, {kept}.')
    if not others:
        kept = "exact is for observations in whole numbers"
        why.append(f'Set arithmetic = "{usual}": {kept}.')
    return {
        "slots": number if wide else None,
        "arithmetic": arithmetic,
        "frames_per_second": rate,
        "share_of_emulators": rate / emulators,
        "why": why,
    }
