"""`germline train`, `resume`, `fork` and `digest`: a spec becomes a run."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from germline.cli import options
from germline.errors import InputError

if TYPE_CHECKING:
    from germline.algorithms import Report
    from germline.run.spec import Resolved
    from germline.run.store import Totals

Run = Annotated[Path, typer.Argument(help="The folder of a run.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="A field of the spec as name=value, such as stop.generations=50."),
]
Backend = Annotated[
    Literal["serial", "processes"] | None, typer.Option(help="Who evaluates, if not as specified.")
]
Workers = Annotated[int | None, typer.Option(min=1, help="How many; one per core if not said.")]
Trust = Annotated[
    bool, typer.Option("--trust", help="Allow the spec to import modules, which is running code.")
]


def train(
    spec: Annotated[Path, typer.Argument(help="A spec, a TOML file.")],
    out: Annotated[
        Path | None, typer.Option(help="The folder of the run; runs/NAME if not given.")
    ] = None,
    set_: Set = None,
    backend: Backend = None,
    workers: Workers = None,
    trust: Trust = False,
) -> None:
    """Begin a run and evolve until a stop rule holds."""
    with _signals() as caught:
        _prepare(trust)
        from germline.run import loop
        from germline.run import spec as specs

        changes = _changes(set_, backend, workers)
        resolved = specs.resolve(specs.read(spec, changes), trust=trust)
        folder = out or Path("runs") / resolved.spec.name
        loop.create(folder, resolved)
        _evolve(folder, resolved, trust, caught)


def resume(
    run: Run,
    set_: Set = None,
    backend: Backend = None,
    workers: Workers = None,
    trust: Trust = False,
) -> None:
    """Go on with a run; stop rules and the backend may be changed, nothing else."""
    changes = _changes(set_, backend, workers)
    for name in changes:
        if name.partition(".")[0] not in ("stop", "backend"):
            raise InputError(
                f"--set: {name} would make it another run; "
                f"use germline fork {run} --generation N --set ..."
            )
    with _signals() as caught:
        _prepare(trust)
        from germline.run import loop
        from germline.run import spec as specs
        from germline.run.store import Store

        with Store.open(run):
            resolved = specs.resolve(specs.read(run / "spec.toml", changes), trust=trust)
        if changes:
            with Store.open(run, write=True):
                loop.write_spec(run, resolved.spec)
        _evolve(run, resolved, trust, caught)


def fork(
    run: Run,
    generation: Annotated[int, typer.Option(min=0, help="The first generation that may differ.")],
    out: Annotated[Path, typer.Option(help="The folder of the new run.")],
    set_: Set = None,
    trust: Trust = False,
) -> None:
    """Begin a run with the first generations of another, and other settings from there on."""
    _prepare(trust)
    from germline.run import loop

    loop.fork(run, generation, out, options.pairs(set_ or []), trust=trust)
    typer.echo(f"{out}: {generation} generations of {run}. Go on with: germline resume {out}")


def digest(run: Run) -> None:
    """Print the SHA-256 over all individuals and evaluations: equal for equal lineages."""
    from germline.run.store import Store

    with Store.open(run) as store:
        typer.echo(store.digest())


def _prepare(trust: bool) -> None:
    """Set JAX up before it is imported; modules of a trusted spec may be in the current folder."""
    from germline import compiled

    if trust:
        sys.path.insert(0, str(Path.cwd()))
    compiled.keep()
    os.environ["XLA_FLAGS"] = compiled.single_threaded()


def _changes(
    given: list[str] | None, backend: str | None, workers: int | None
) -> dict[str, object]:
    changes: dict[str, object] = dict(options.pairs(given or []))
    if backend is not None:
        changes["backend.name"] = backend
    if workers is not None:
        changes["backend.workers"] = workers
    return changes


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Note Ctrl-C and SIGTERM instead of dying of them; a second one is not waited for."""
    caught: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        if len(caught) > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _evolve(folder: Path, resolved: "Resolved", trust: bool, caught: list[int]) -> None:
    """Run until a stop rule holds or a signal is caught, and say how it ended."""
    from germline.run import loop

    with loop.backend_of(resolved.spec.backend, trust=trust) as backend:
        outcome = loop.evolve(
            folder,
            resolved,
            backend,
            listener=_line,
            stopped=lambda: bool(caught),
            warn=lambda text: typer.echo(f"germline: {text}", err=True),
        )
    if outcome.reason is not None:
        typer.echo(f"{folder}: finished by {outcome.reason}.")
        return
    typer.echo(
        f"{folder}: stopped in generation {outcome.generation}, nothing is lost. "
        f"Go on with: germline resume {folder}{' --trust' if trust else ''}"
    )
    raise typer.Exit(128 + caught[0])


def _line(report: "Report", totals: "Totals") -> None:
    typer.echo(
        f"generation {report.generation:>5,}  best {report.best:>10,.6g}  "
        f"mean {report.mean:>10,.6g}  elite {report.elite:>10,.6g}  "
        f"frames {totals.frames:>13,}  {totals.seconds:>9,.1f} s"
    )
