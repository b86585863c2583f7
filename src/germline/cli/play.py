"""`germline play`: the sight of an individual."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from germline import device as devices
from germline.cli import options
from germline.cli.options import Force, Trust, individual
from germline.cli.options.individual import Cap, Environment, Imports, Seed, Where
from germline.cli.output import say
from germline.cli.output.numbers import counted, number


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
    from germline.cli.output import screens

    screen = screens.choose(out, how, speed, replace=force)
    devices.offscreen(window=isinstance(screen, screens.Window))
    with options.signals() as caught:
        options.prepare(trust)
        from germline.run.score import watch

        file, modules = individual.load(where, env, imports or [], trust=trust)
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
