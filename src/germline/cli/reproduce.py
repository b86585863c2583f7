"""`germline reproduce`: a game of the paper, trained and scored its way, and held against it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from germline.cli import evaluate, options, train
from germline.cli.options import (
    Backend,
    Certificate,
    Device,
    Insecure,
    Json,
    Key,
    Plain,
    TokenFile,
    Workers,
)
from germline.cli.output import progress, say, say_json
from germline.cli.output import tensorboard as board
from germline.cli.output.numbers import number
from germline.cli.output.tensorboard import FilmEvery, TensorBoard
from germline.errors import InputError

if TYPE_CHECKING:
    from germline.files import GenomeFile
    from germline.run.score import Scores
    from germline.run.spec import Resolved, Spec

PRESETS = {"ga": "frostbite", "es": "frostbite-es", "random-search": "frostbite-rs"}


def complete_game(incomplete: str) -> list[str]:
    """Games of the paper by the start of their name."""
    from germline import paper

    return [game for game in paper.TABLE if game.startswith(incomplete)]


def reproduce(
    game: Annotated[
        str,
        typer.Argument(
            help="A game of the paper, such as frostbite.", autocompletion=complete_game
        ),
    ],
    algorithm: Annotated[
        Literal["ga", "es", "random-search"], typer.Option(help="Which of the paper's.")
    ] = "ga",
    frames: Annotated[
        int | None, typer.Option(min=1, help="A budget other than the paper's billion.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The seed of the run.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the run; runs/reproduce-GAME if not given.")
    ] = None,
    backend: Backend = None,
    workers: Workers = None,
    device: Device = None,
    token_file: TokenFile = None,
    certificate: Certificate = None,
    key: Key = None,
    insecure: Insecure = False,
    tensorboard: TensorBoard = False,
    film_every: FilmEvery = 0,
    json: Json = False,
    plain: Plain = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show the outcome alone.")] = False,
) -> None:
    """Train a game as in "Deep Neuroevolution" and hold its champion against the paper's figure.

    The paper's network in float32, its budget, and 200 fresh episodes of the champion. Called
    again, it goes on where it was stopped. The exit code is 0 if the mean reaches the figure,
    and 1 if not.
    """
    progress.check(json=json, plain=plain, quiet=quiet)
    board.check(tensorboard, film_every)
    from germline import paper

    budget = frames or paper.FRAMES
    figure = paper.figure(game, algorithm, budget)
    again = _again(game, algorithm, frames, seed, out)
    with options.signals() as caught:
        options.prepare(False)
        folder = out or Path("runs") / _name(game, algorithm)
        changes = {"stop.frames": budget} | options.changes(
            None,
            backend=backend,
            workers=workers,
            device=device,
            token_file=token_file,
            certificate=certificate,
            key=key,
            insecure=insecure,
        )
        resolved = _begun_or_found(folder, _spec(game, algorithm, seed, changes), changes)
        boarded = train.board_of(folder, resolved, tensorboard, film_every, False, caught)
        shown = progress.choose(folder, resolved.spec, json=json, plain=plain, quiet=quiet)
        ending = train.evolve(folder, resolved, shown, False, caught, boarded)
        if ending.reason is None:
            shown.end(ending, f"Go on with: {again}")
            raise typer.Exit(128 + caught[0])
        shown.end(ending, f"Its champion plays {paper.EPISODES} fresh episodes now.")
        engine = resolved.spec.backend
        count = 1 if engine.name == "serial" else engine.workers
        champion, scores = _scored(folder, count, caught, again)
    passed = scores.mean >= figure.score
    found = {
        "event": "outcome",
        "run": str(folder),
        "id": champion.genome.id,
        "algorithm": algorithm,
        "seed": seed,
        "passed": passed,
        "figure": figure.score,
        "figure_frames": figure.frames,
        "run_frames": ending.totals.frames,
        **evaluate.compared(champion),
        **evaluate.facts(scores),
    }
    if json:
        say_json(found)
    else:
        _say_outcome(found, scores)
    raise typer.Exit(0 if passed else 1)


def _name(game: str, algorithm: str) -> str:
    return f"reproduce-{game}" if algorithm == "ga" else f"reproduce-{game}-{algorithm}"


def _spec(game: str, algorithm: str, seed: int, changes: dict[str, Any]) -> "Spec":
    """The preset of the algorithm, for this game, with the paper's arithmetic."""
    from germline import presets

    own = {
        "name": _name(game, algorithm),
        "seed": seed,
        "arithmetic": "float32",
        "task.game": game,
    }
    return presets.read(PRESETS[algorithm], own | changes)


def _begun_or_found(folder: Path, spec: "Spec", changes: dict[str, Any]) -> "Resolved":
    """The run in a folder, with other stop rules or another backend; a new one if there is none."""
    from germline import api
    from germline.run import engines, loop
    from germline.run import spec as specs
    from germline.run.difference import difference, plain

    if not (folder / "run.db").exists():
        resolved = specs.resolve(spec)
        engines.check(resolved.engine)
        loop.create(folder, resolved)
        return resolved
    there = specs.of_run(folder)
    if other := difference(there, specs.resolve(spec).spec):
        name = f"{other.field} is"
        if other.table is not None:
            name = f"{other.table} has {other.field} ="
        raise InputError(
            f"{folder}: is another run, its {name} {other.there}, not {other.wanted}; "
            "give this one another folder with --out"
        )
    new, known = {}, plain(there)
    for name, value in changes.items():
        table, _, field = name.partition(".")
        if known.get(table, {}).get(field) != value:
            new[name] = value
    return api.go_on(folder, new, trust=False)


def _scored(
    folder: Path, workers: int | None, caught: list[int], again: str
) -> "tuple[GenomeFile, Scores]":
    """The champion of a finished run, and how it does in fresh episodes."""
    from germline import api, paper
    from germline.run.score import score

    champion = api.Run(folder).champion
    try:
        return champion, score(
            champion, paper.EPISODES, workers=workers, stopped=lambda: bool(caught)
        )
    except KeyboardInterrupt:
        typer.echo(f"{folder}: is trained but not scored. Go on with: {again}", err=True)
        raise


def _again(game: str, algorithm: str, frames: int | None, seed: int, out: Path | None) -> str:
    """The command that goes on."""
    parts = ["germline reproduce", game]
    parts += [f"--algorithm {algorithm}"] if algorithm != "ga" else []
    parts += [f"--frames {frames}"] if frames else []
    parts += [f"--seed {seed}"] if seed != 1 else []
    return " ".join(parts + ([f"--out {out}"] if out else []))


def _say_outcome(found: dict[str, Any], scores: "Scores") -> None:
    from germline import paper

    evaluate.say_scores(found["id"], scores)
    evaluate.say_compared(found)
    word, than = ("passed", "at least") if found["passed"] else ("failed", "below")
    who = f"{paper.ALGORITHMS[found['algorithm']]} at {found['figure_frames']:,} frames"
    say(
        f"{word}: {number(found['mean'])} is {than} the paper's {number(found['figure'])}, "
        f"{who}; this run played {found['run_frames']:,}"
    )
    if found["run_frames"] < found["figure_frames"]:
        played, paid = found["run_frames"], found["figure_frames"]
        say(f"The comparison is at fewer frames: {played:,} of the paper's {paid:,}.")
