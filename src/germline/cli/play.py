"""`germline eval` and `germline play`: an individual's score, and the sight of it."""

import math
from pathlib import Path
from typing import Annotated, Literal

import typer

from germline import device as devices
from germline import paper
from germline.cli import options
from germline.cli import protocol as protocols
from germline.cli.charts import counted, number
from germline.cli.options import AsJson, Force, Trust
from germline.cli.output import say, say_json
from germline.cli.target import Environment, Imports, Where
from germline.errors import InputError

EPISODES = 100

Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Which fresh episodes.")]
Cap = Annotated[
    int | None, typer.Option(min=1, max=2**24, help="End an episode after so many steps.")
]


def evaluate(
    where: Where,
    episodes: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="How many; 100 if not said.")
    ] = None,
    protocol: Annotated[
        Literal["paper"] | None,
        typer.Option(help="200 episodes of an Atari game, beside the paper's own figures."),
    ] = None,
    seed: Seed = 0,
    cap: Cap = None,
    env: Environment = None,
    imports: Imports = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=4096, help="How many; one per core if not said.")
    ] = None,
    device: options.Device = None,
    at_least: Annotated[
        float | None, typer.Option(help="Exit with code 1 if the mean is lower.")
    ] = None,
    trust: Trust = False,
    json: AsJson = False,
) -> None:
    """Score an individual on fresh episodes, which no run has seen."""
    if at_least is not None and math.isnan(at_least):
        raise InputError("--at-least: nan is not a number that a mean can reach")
    for name, value in (("--episodes", episodes), ("--cap", cap)):
        if protocol and value is not None:
            raise InputError(f"{name}: --protocol {protocol} says how many; give one of the two")
    with options.signals() as caught:
        options.prepare(trust)
        from germline.cli import target
        from germline.run.score import score

        file, modules = target.load(where, env, imports or [], trust=trust)
        published = protocols.compared(file) if protocol else {}
        scores = score(
            file,
            paper.EPISODES if protocol else episodes or EPISODES,
            seed=seed,
            cap=cap,
            workers=workers,
            device=options.device(device),
            imports=modules,
            trust=trust,
            stopped=lambda: bool(caught),
        )
    if json:
        say_json({"id": file.genome.id, **protocols.facts(scores), **published})
    else:
        protocols.say_scores(file.genome.id, scores)
        if published:
            protocols.say_compared(published)
    if at_least is not None and scores.mean < at_least:
        raise typer.Exit(1)


def play(
    where: Where,
    out: Annotated[
        Path | None, typer.Option(help="Write a film: .gif, .mp4, .webm, .mov or .mkv.")
    ] = None,
    how: Annotated[
        Literal["window", "terminal", "text"] | None,
        typer.Option(help="If not said: a window where there is a screen, else the terminal."),
    ] = None,
    episodes: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 1,
    seed: Seed = 0,
    cap: Cap = None,
    speed: Annotated[
        float, typer.Option(min=0.01, max=1000, help="2 is twice as fast as natural.")
    ] = 1.0,
    env: Environment = None,
    imports: Imports = None,
    force: Force = False,
    trust: Trust = False,
) -> None:
    """Watch an individual play: in a window, in the terminal, as text or as a film."""
    from germline.cli import screens

    screen = screens.choose(out, how, speed, replace=force)
    devices.offscreen(window=isinstance(screen, screens.Window))
    with options.signals() as caught:
        options.prepare(trust)
        from germline.cli import target
        from germline.run.score import watch

        file, modules = target.load(where, env, imports or [], trust=trust)
        with screen:
            scores = watch(
                file,
                screen.show,
                drawn=screen.drawn,
                episodes=episodes,
                seed=seed,
                cap=cap,
                imports=modules,
                trust=trust,
                stopped=lambda: bool(caught),
            )
    for place, (value, steps) in enumerate(zip(scores.returns, scores.steps, strict=True)):
        say(f"episode {place}: score {number(value)} in {counted(steps, 'step')}")
    if out is not None:
        say(f"{out}: {out.stat().st_size:,} bytes")
