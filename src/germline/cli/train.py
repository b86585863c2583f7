"""`germline train`, `resume` and `fork`: a spec becomes a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from germline.cli import display, options
from germline.cli.charts import counted
from germline.cli.options import AsJson, Run, Trust
from germline.cli.output import say, say_json
from germline.errors import printable

if TYPE_CHECKING:
    from germline.run.spec import Resolved

Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="A field of the spec as name=value, such as stop.generations=50."),
]
Backend = Annotated[
    Literal["serial", "processes"] | None, typer.Option(help="Who evaluates, if not as specified.")
]
Workers = Annotated[int | None, typer.Option(min=1, help="How many; one per core if not said.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per generation.")]
Plain = Annotated[bool, typer.Option("--plain", help="One line per generation, as in a pipe.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing, unless it is stopped.")]


def train(
    spec: Annotated[
        str,
        typer.Argument(
            metavar="PRESET|SPEC",
            help="A preset, see germline presets, or a TOML file.",
            autocompletion=options.complete_spec,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The folder of the run; runs/NAME if not given.")
    ] = None,
    set_: Set = None,
    backend: Backend = None,
    workers: Workers = None,
    trust: Trust = False,
    json: Json = False,
    plain: Plain = False,
    quiet: Quiet = False,
) -> None:
    """Begin a run and evolve until a stop rule holds."""
    display.check(json=json, plain=plain, quiet=quiet)
    with options.signals() as caught:
        changes = _changes(set_, backend, workers)
        from germline import presets

        given = presets.read(spec, changes)
        options.prepare(trust)
        from germline import api
        from germline.run import loop
        from germline.run import spec as specs

        resolved = specs.resolve(given, trust=trust)
        folder = out or api.unused(Path("runs") / resolved.spec.name)
        loop.create(folder, resolved)
        shown = display.choose(folder, resolved.spec, json=json, plain=plain, quiet=quiet)
        _evolve(folder, resolved, shown, trust, caught)


def resume(
    run: Run,
    set_: Set = None,
    backend: Backend = None,
    workers: Workers = None,
    trust: Trust = False,
    json: Json = False,
    plain: Plain = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a run; stop rules and the backend may be changed, nothing else."""
    display.check(json=json, plain=plain, quiet=quiet)
    with options.signals() as caught:
        changes = _changes(set_, backend, workers)
        options.prepare(trust)
        from germline import api

        resolved = api.go_on(run, changes, trust=trust)
        shown = display.choose(run, resolved.spec, json=json, plain=plain, quiet=quiet)
        _evolve(run, resolved, shown, trust, caught)


def fork(
    run: Run,
    generation: Annotated[int, typer.Option(min=0, help="The first generation that may differ.")],
    out: Annotated[
        Path | None, typer.Option(help="The folder of the new run; RUN-fork if not given.")
    ] = None,
    set_: Set = None,
    trust: Trust = False,
    json: AsJson = False,
) -> None:
    """Begin a run with the first generations of another, and other settings from there on."""
    options.prepare(trust)
    from germline import api
    from germline.run import loop

    folder = out or api.unused(run.with_name(f"{run.resolve().name}-fork"))
    loop.fork(run, generation, folder, options.pairs(set_ or []), trust=trust)
    again = f"germline resume {folder}{_trusted(trust)}"
    if json:
        say_json({"run": str(folder), "generations": generation, "origin": str(run)})
    else:
        say(f"{folder}: {counted(generation, 'generation')} of {run}. Go on with: {again}")


def _changes(
    given: list[str] | None, backend: str | None, workers: int | None
) -> dict[str, object]:
    changes: dict[str, object] = dict(options.pairs(given or []))
    if backend is not None:
        changes["backend.name"] = backend
    if workers is not None:
        changes["backend.workers"] = workers
    return changes


def _trusted(trust: bool) -> str:
    return " --trust" if trust else ""


def _evolve(
    folder: Path, resolved: "Resolved", shown: display.Display, trust: bool, caught: list[int]
) -> None:
    """Run until a stop rule holds or a signal is caught, and say how it ended."""
    from germline.run import loop

    with shown, loop.backend_of(resolved.spec.backend, trust=trust) as backend:
        ending = loop.evolve(
            folder,
            resolved,
            backend,
            begun=shown.begin,
            listener=shown.generation,
            ticker=shown.tick,
            stopped=lambda: bool(caught),
            warn=lambda text: typer.echo(f"germline: {printable(text)}", err=True),
        )
    if ending.reason is not None:
        shown.end(ending, f"Watch the champion with: germline play {folder}{_trusted(trust)}")
        return
    shown.end(ending, f"Go on with: germline resume {folder}{_trusted(trust)}")
    raise typer.Exit(128 + caught[0])
