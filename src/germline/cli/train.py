"""`germline train`: a spec becomes a run; and how a run is evolved, begun or gone on with."""

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from germline.cli import options
from germline.cli.options import (
    Audit,
    Backend,
    Certificate,
    Device,
    Insecure,
    Json,
    Key,
    Plain,
    Quiet,
    Set,
    SpecName,
    TokenFile,
    Trust,
    Workers,
)
from germline.cli.output import films, progress, warn
from germline.cli.output import tensorboard as board
from germline.cli.output.tensorboard import FilmEvery, TensorBoard

if TYPE_CHECKING:
    from germline.algorithms.protocols import Report
    from germline.run.loop import Ending
    from germline.run.spec import Resolved, Spec
    from germline.run.stop import Totals


def train(
    spec: SpecName,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the run; runs/NAME if not given.")
    ] = None,
    set_: Set = None,
    backend: Backend = None,
    workers: Workers = None,
    device: Device = None,
    token_file: TokenFile = None,
    certificate: Certificate = None,
    key: Key = None,
    insecure: Insecure = False,
    audit: Audit = None,
    async_: Annotated[
        bool, typer.Option("--async", help="Let nobody wait for the end of a generation.")
    ] = False,
    trust: Trust = False,
    tensorboard: TensorBoard = False,
    film_every: FilmEvery = 0,
    json: Json = False,
    plain: Plain = False,
    quiet: Quiet = False,
) -> None:
    """Begin a run and evolve until a stop rule holds."""
    progress.check(json=json, plain=plain, quiet=quiet)
    board.check(tensorboard, film_every)
    with options.signals() as caught:
        changes = options.changes(
            set_,
            backend=backend,
            workers=workers,
            device=device,
            token_file=token_file,
            certificate=certificate,
            key=key,
            insecure=insecure,
            audit=audit,
        )
        from germline import presets

        given = presets.read(spec, changes)
        if async_:
            given = asynchronous(given)
        options.prepare(trust)
        from germline import api
        from germline.run import engines, loop
        from germline.run import spec as specs

        resolved = specs.resolve(given, trust=trust)
        engines.check(resolved.engine)
        folder = out or api.unused(Path("runs") / resolved.spec.name)
        boarded = board_of(folder, resolved, tensorboard, film_every, trust, caught)
        loop.create(folder, resolved)
        shown = progress.choose(folder, resolved.spec, json=json, plain=plain, quiet=quiet)
        ending = evolve(folder, resolved, shown, trust, caught, boarded)
        end(ending, folder, resolved, shown, trust, caught)


def asynchronous(spec: "Spec") -> "Spec":
    """The same spec with the form of its algorithm that has no generations to wait for."""
    import msgspec

    from germline import algorithms

    name = algorithms.asynchronous(spec.algorithm["name"])
    return msgspec.structs.replace(spec, algorithm={**spec.algorithm, "name": name})


def board_of(
    folder: Path,
    resolved: "Resolved",
    tensorboard: bool,
    every: int,
    trust: bool,
    caught: list[int],
) -> board.Board | None:
    """Who writes for TensorBoard, if that was asked for."""
    if not tensorboard:
        return None
    return board.Board(
        folder, resolved, every, trust=trust, stopped=lambda: bool(caught), warn=warn
    )


def evolve(
    folder: Path,
    resolved: "Resolved",
    shown: progress.Quiet,
    trust: bool,
    caught: list[int],
    boarded: board.Board | None,
) -> "Ending":
    """Run until a stop rule holds or a signal is caught."""
    from germline.run import engines, loop

    with (
        shown,
        boarded or contextlib.nullcontext(),
        engines.backend_of(resolved.engine, trust=trust, warn=warn) as backend,
    ):

        def begun(history: "list[tuple[Report, Totals]]") -> None:
            shown.begin(history)
            if boarded is not None:
                boarded.begin(history)

        return loop.evolve(
            folder,
            resolved,
            backend,
            begun=begun,
            listener=shown.generation,
            aside=None if boarded is None else boarded.generation,
            ticker=shown.tick,
            stopped=lambda: bool(caught),
            warn=warn,
        )


def end(
    ending: "Ending",
    folder: Path,
    resolved: "Resolved",
    shown: progress.Quiet,
    trust: bool,
    caught: list[int],
) -> None:
    """Say how it ended, and what can be done next."""
    run = f"{shlex.quote(str(folder))}{options.trusted(trust)}"
    if ending.reason is not None:
        advice = f"Watch the champion with: germline play {run}"
        if not films.filmable(resolved.problem.task):
            advice = f"See what the champion scores with: germline eval {run}"
        if not ending.totals.generations:
            advice = (
                "That is before the end of the first generation; go on with: germline resume "
                f"{run} --set stop.cost=MORE"
            )
        shown.end(ending, advice)
        return
    shown.end(ending, f"Go on with: germline resume {run}")
    raise typer.Exit(128 + caught[0])
