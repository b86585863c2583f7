"""`germline eval`: what an individual scores, also the paper's way, beside the paper's figures."""

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from germline import paper
from germline.cli import options
from germline.cli.options import AsJson, Trust, individual
from germline.cli.options.individual import Cap, Environment, Imports, Seed, Where
from germline.cli.output import say, say_json
from germline.cli.output.numbers import counted, number
from germline.errors import InputError, printable

if TYPE_CHECKING:
    from germline.files import GenomeFile
    from germline.run.score import Scores

EPISODES = 100


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
    device: Annotated[
        str | None,
        typer.Option(
            metavar="auto|cpu|gpu|tpu",
            help="What to compute on; if not said, an accelerator in exact arithmetic alone.",
        ),
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
    for name, value in (("--episodes", episodes), ("--cap", cap)):
        if protocol and value is not None:
            raise InputError(f"{name}: --protocol {protocol} says how many; give one of the two")
    with options.signals() as caught:
        options.prepare(trust)
        from germline.run.score import score

        file, modules = individual.load(where, env, imports or [], trust=trust)
        published = compared(file) if protocol else {}
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
        say_json({"id": file.genome.id, **facts(scores), **published})
    else:
        say_scores(file.genome.id, scores)
        if published:
            say_compared(published)
    if at_least is not None and scores.mean < at_least:
        raise typer.Exit(1)


def compared(file: "GenomeFile") -> dict[str, Any]:
    """The game, its row, if it has one, and what is not played as in the paper."""
    import msgspec

    from germline import tasks

    assert file.task is not None
    if file.task.name != "atari":
        raise InputError(
            f"--protocol: paper is for Atari games, and {file.genome.id} plays {file.task.name}"
        )
    settings = msgspec.to_builtins(tasks.make(file.task.name, file.task.settings))
    game = settings["game"]
    row = paper.TABLE.get(game)
    return {
        "protocol": "paper",
        "game": game,
        "paper": None if row is None else row._asdict(),
        "differences": paper.differences(settings),
    }


def facts(scores: "Scores") -> dict[str, Any]:
    """All that is known of some episodes."""
    return {
        "episodes": len(scores.returns),
        "mean": scores.mean,
        "standard_error": scores.error,
        "median": scores.median,
        "returns": scores.returns,
        "steps": scores.steps,
        "frames": scores.frames,
    }


def say_scores(name: str, scores: "Scores") -> None:
    """The mean of some episodes and how they spread, in a sentence."""
    low, high = min(scores.returns), max(scores.returns)
    say(
        f"{name}: mean {number(scores.mean)} ± {number(scores.error)} over "
        f"{counted(len(scores.returns), 'fresh episode')}, median {number(scores.median)}, "
        f"from {number(low)} to {number(high)}"
    )


def say_compared(found: dict[str, Any]) -> None:
    """The row of the game, and what is not played as in the paper."""
    game = found["game"]
    say(paper.sentence(game) if found["paper"] else f"{game}: the paper has no figures for it")
    if found["differences"]:
        given = ", ".join(f"{name} = {value}" for name, value in found["differences"].items())
        say(printable(f"not played as in the paper: {given}"))
