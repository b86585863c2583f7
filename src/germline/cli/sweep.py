"""`germline sweep`: many runs that differ in a few settings, one table and one figure."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from germline.cli import options
from germline.cli.options import (
    Audit,
    Backend,
    Certificate,
    Device,
    Insecure,
    Key,
    Set,
    TokenFile,
    Trust,
    Workers,
    completion,
)
from germline.cli.output import console, progress, say, say_json, sweep_progress, table, warn
from germline.cli.output.numbers import counted, duration, number
from germline.errors import InputError, printable

if TYPE_CHECKING:
    from germline.sweep import Row, Sweep

WIDEST = 200  # columns of a table in a pipe


def sweep(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SWEEP.toml|SWEEP",
            help="A sweep file, or the folder of a sweep to go on with.",
            autocompletion=completion.sweep,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The folder of the sweep; sweeps/NAME if not given.")
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
    jobs: Annotated[
        int,
        typer.Option(min=1, max=256, help="Runs at once, with a share of the workers each."),
    ] = 1,
    table_: Annotated[
        bool, typer.Option("--table", help="Run nothing: table and figure of what is finished.")
    ] = False,
    include: options.Include = "",
    trust: Trust = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per run.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="One line per run, as in a pipe.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show nothing, unless something goes wrong.")
    ] = False,
) -> None:
    """Do many runs that differ in a few settings, or go on with them; then a table and a figure.

    The exit code is 0 if all runs are finished, and 1 if some failed.
    """
    progress.check(json=json, plain=plain, quiet=quiet)
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
        options.prepare(trust)
        from germline import sweep as sweeps
        from germline.run import handover

        asked = handover.asked(include)
        folder = sweeps.place(source, out)
        if table_:
            _refuse_beside_table(changes, jobs)
            found = sweeps.Sweep(folder)
            _end(found, found.write(asked), json=json, quiet=quiet)
            return
        made = sweeps.planned(source, changes, trust=trust)
        screen = sweep_progress.choose(folder, jobs, json=json, plain=plain, quiet=quiet)
        failed = sweeps.evolve(
            folder,
            made,
            count=jobs,
            include=asked,
            trust=trust,
            begun=screen.begin,
            show=screen.run,
            listener=screen.ran,
            stopped=lambda: bool(caught),
            warn=warn,
        )
        if caught:
            screen.stop(_again(folder, jobs, trust))
        else:
            found = sweeps.Sweep(folder)
            _end(found, found.table, json=json, quiet=quiet)
    for result in failed:
        where, words = str(result.job.folder), str(result.error)
        warn(words if words.startswith(where) else f"{where}: {words}")
    if caught:
        raise typer.Exit(128 + caught[0])
    raise typer.Exit(1 if failed else 0)


def _refuse_beside_table(changes: dict[str, Any], jobs: int) -> None:
    for name in changes:
        raise InputError(f"--table: {name} cannot be changed where nothing is run")
    if jobs > 1:
        raise InputError("--jobs: has no meaning beside --table; give one of the two")


def _end(found: "Sweep", rows: "list[Row]", *, json: bool, quiet: bool) -> None:
    """The table, and where it is."""
    if json:
        say_json({"event": "table", "sweep": str(found.folder), "cells": rows})
    elif not quiet:
        _print_table(rows)
        done, runs = sum(row.finished for row in rows), sum(row.seeds for row in rows)
        if done < runs:
            say(f"Only {done:,} of {counted(runs, 'run')} are finished, and no other is in this.")
        say(f"Written to {found.folder / 'table.csv'} and {found.folder / 'figure.svg'}.")


def _print_table(rows: "list[Row]") -> None:
    from germline.sweep.table import labels

    paid = any(row.cost for row in rows)
    numbers = ["seeds", "median", "quartiles", "best", "gen.", "frames", "time"]
    numbers += ["cost"] if paid else []
    made = table("cell", *numbers, right=tuple(numbers))
    for row, name in zip(rows, labels([row.columns for row in rows]), strict=True):
        made.add_row(printable(name), *_numbers(row, paid))
    screen = console()
    if not screen.is_terminal:
        screen.width = WIDEST  # nothing needs to be cut in a file
    screen.print(made)


def _numbers(row: "Row", paid: bool) -> list[str]:
    seeds = f"{row.finished:,}" if row.finished == row.seeds else f"{row.finished:,}/{row.seeds:,}"
    if not row.finished:
        return [seeds]
    return [
        seeds,
        *_scores(row),
        number(row.generations or 0.0),
        f"{row.frames or 0:,.0f}",
        duration(row.seconds or 0.0),
        *([number(row.cost or 0.0)] if paid else []),
    ]


def _scores(row: "Row") -> list[str]:
    if row.median is None or row.lower is None or row.upper is None or row.best is None:
        return ["none", "", ""]
    return [number(row.median), f"{number(row.lower)} – {number(row.upper)}", number(row.best)]


def _again(folder: Path, jobs: int, trust: bool) -> str:
    """The command that goes on."""
    at_once = f" --jobs {jobs}" if jobs > 1 else ""
    return f"germline sweep {shlex.quote(str(folder))}{at_once}{options.trusted(trust)}"
