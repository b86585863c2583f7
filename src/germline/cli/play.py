"""`germline eval` and `germline play`: an individual's score, and the sight of it."""

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from germline.cli import options
from germline.cli.charts import counted, number
from germline.cli.options import AsJson, Force, Trust
from germline.cli.output import say, say_json
from germline.cli.target import Environment, Imports, Where
from germline.errors import InputError

if TYPE_CHECKING:
    from germline.run.score import Scores

Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Which fresh episodes.")]
Cap = Annotated[
    int | None, typer.Option(min=1, max=2**24, help="End an episode after so many steps.")
]


def evaluate(
    where: Where,
    episodes: Annotated[int, typer.Option(min=1, max=100_000, help="How many.")] = 100,
    seed: Seed = 0,
    cap: Cap = None,
    env: Environment = None,
    imports: Imports = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=4096, help="How many; one per core if not said.")
    ] = None,
    at_least: Annotated[
        float | None, typer.Option(help="Exit with code 1 if the mean is lower.")
    ] = None,
    trust: Trust = False,
    json: AsJson = False,
) -> None:
    """Score an individual on fresh episodes, which no run has seen."""
    if at_least is not None and math.isnan(at_least):
        raise InputError("--at-least: nan is not a number that a mean can reach")
    with options.signals() as caught:
        options.prepare(trust)
        from germline.cli import target
        from germline.run.score import score

        file, modules = target.load(where, env, imports or [], trust=trust)
        scores = score(
            file,
            episodes,
            seed=seed,
            cap=cap,
            workers=workers,
            imports=modules,
            trust=trust,
            stopped=lambda: bool(caught),
        )
    if json:
        say_json({"id": file.genome.id, **_facts(scores)})
    else:
        low, high = min(scores.returns), max(scores.returns)
        say(
            f"{file.genome.id}: mean {number(scores.mean)} ± {number(scores.error)} over "
            f"{counted(episodes, 'fresh episode')}, median {number(scores.median)}, "
            f"from {number(low)} to {number(high)}"
        )
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
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    if not isinstance(screen, screens.Window):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # draw without a screen
    if "DISPLAY" not in os.environ:
        os.environ.setdefault("MUJOCO_GL", "egl")
    os.environ.setdefault("IMAGEIO_FFMPEG_NO_PREVENT_SIGINT", "1")  # which would fork beside JAX
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


def _facts(scores: "Scores") -> dict[str, object]:
    return {
        "episodes": len(scores.returns),
        "mean": scores.mean,
        "standard_error": scores.error,
        "median": scores.median,
        "returns": scores.returns,
        "steps": scores.steps,
        "frames": scores.frames,
    }
