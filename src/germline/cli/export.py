"""`germline export`: a genome, weights or numbers of a run, in files that others read."""

import csv
import io
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from germline.cli import options
from germline.cli.options import Force, Include, Run, Trust, individual
from germline.cli.options.individual import Where
from germline.cli.output import say, warn
from germline.cli.output.numbers import counted
from germline.errors import InputError

if TYPE_CHECKING:
    from germline.files import GenomeFile
    from germline.run.store import Store


class Exports(TyperGroup):
    """The kinds of files; `--html` is the same as `html`, wherever it stands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401, D102 - as there
        if "--html" in args:
            args = ["html", *(argument for argument in args if argument != "--html")]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=Exports,
    no_args_is_help=True,
    help="Write a genome, weights, the numbers of a run, or all of it as a page, to a file.",
)

Table = Annotated[
    Path, typer.Option(help="Write here: .csv, or .parquet (pip install 'germline[parquet]').")
]


@app.command()
def genome(
    where: Where,
    out: Annotated[Path, typer.Option(help="Write here; the file alone is enough to play.")],
    force: Force = False,
    trust: Trust = False,
) -> None:
    """Write an individual as a genome file: a few kilobytes of JSON, or safetensors for ES."""
    file = _found(where, out, force=force, trust=trust)
    from germline import files

    right = files.ending(file)
    if out.suffix in (".safetensors", ".json") and out.suffix != right:
        raise InputError(f"{out}: this genome is written as {right}; give it that ending")
    files.write(out, file, replace=force)
    say(f"{out}: {file.genome.id}, {counted(len(file.genome.genes), 'gene')}")


@app.command()
def weights(
    where: Where,
    out: Annotated[Path, typer.Option(help="Write here, as safetensors.")],
    force: Force = False,
    trust: Trust = False,
) -> None:
    """Write the decoded weights of an individual as named tensors."""
    file = _found(where, out, force=force, trust=trust)
    from germline import policies
    from germline.cli.genome import write_weights

    write_weights(file, policies.layout_of(file.genome.policy), out, force=force)


def _found(where: str, out: Path, *, force: bool, trust: bool) -> "GenomeFile":
    """Who is to be written, once it can be."""
    options.prepare(trust)
    from germline import disk

    disk.check_writable(out, replace=force)
    return individual.find(where, trust=trust).file


@app.command()
def metrics(run: Run, out: Table, include: Include = "", force: Force = False) -> None:
    """Write one row per generation: scores, frames, time, and if asked for costs."""
    _write_table(run, out, metrics_of, include=include, force=force)


@app.command()
def evaluations(run: Run, out: Table, include: Include = "", force: Force = False) -> None:
    """Write one row per evaluation: who, in which generation, with what result."""
    _write_table(run, out, evaluations_of, include=include, force=force)


@app.command()
def html(
    run: Run,
    out: Annotated[Path, typer.Option(help="Write here; a browser opens it from the disk.")],
    film: Annotated[bool, typer.Option(help="With a film of the champion.")] = True,
    include: Include = "",
    force: Force = False,
) -> None:
    """Write a run as one HTML file: curves, lineage and film. `export --html` is the same."""
    from germline.cli.dashboard import require

    require("export html")
    from germline import disk
    from germline.dashboard.export import export
    from germline.run import handover

    asked = handover.asked(include)
    disk.check_writable(out, replace=force)
    data = export(run, film=film, include=asked, warn=warn)
    disk.save(out, data, replace=force)
    say(f"{out}: {len(data):,} bytes")


Columns = dict[str, list[Any]]


def metrics_of(store: "Store", include: Collection[str]) -> Columns:
    """Every report, the totals so far and what was to go by the present stop rules, by column."""
    import msgspec

    from germline.run import spec as specs
    from germline.run.cost import Pace, per_billion

    stop, pace, rows = specs.of_run(store.folder).stop, Pace(), []
    for report, totals in store.progress():
        pace.add(totals)
        to_go = pace.to_go(stop, report)
        rows.append(
            {
                **msgspec.to_builtins(report),
                **{f"total_{name}": value for name, value in totals._asdict().items()},
                "cost_per_billion_frames": per_billion(totals),
                "seconds_to_go": to_go and to_go.seconds,
                "cost_to_go": to_go and to_go.cost,
            }
        )
    columns = _columns(rows)
    if "costs" in include:
        return columns
    return {name: values for name, values in columns.items() if "cost" not in name.split("_")}


def evaluations_of(store: "Store", include: Collection[str]) -> Columns:
    """Every evaluation, by column; the fitness is the mean return."""
    from germline.run import handover

    rows = [
        {
            "individual": scored.id,
            "generation": scored.generation,
            "phase": scored.phase,
            "number": scored.number,
            "episodes": len(scored.returns),
            "fitness": sum(scored.returns) / len(scored.returns) if scored.returns else None,
            "steps": sum(scored.steps),
            "frames": sum(scored.frames),
            "failure": handover.failure(scored.failure, include),
        }
        for scored in store.scores()
    ]
    return _columns(rows)


def _columns(rows: Sequence[dict[str, Any]]) -> Columns:
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else {})}


def _write_table(
    run: Path,
    out: Path,
    read: Any,  # noqa: ANN401 - one of the above
    *,
    include: str,
    force: bool,
) -> None:
    from germline import disk
    from germline.run import handover
    from germline.run.store import Store

    writers = {".csv": _csv, ".parquet": _parquet}
    write = writers.get(out.suffix.lower() or out.name.lower())
    if write is None:
        raise InputError(f"{out}: is neither .csv nor .parquet, so its form is not known")
    asked = handover.asked(include)
    disk.check_writable(out, replace=force)
    with Store.open(run) as store:
        columns = read(store, asked)
    if not columns:
        raise InputError(f"{run}: has nothing to export yet")
    disk.save(out, write(columns), replace=force)
    count = len(next(iter(columns.values())))
    say(f"{out}: {counted(count, 'row')} of {counted(len(columns), 'column')}")


def _csv(columns: Columns) -> bytes:
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(columns)
    table.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode()


def _parquet(columns: Columns) -> bytes:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise InputError(
            "--out: pyarrow is not here, add it with: pip install 'germline[parquet]'"
        ) from None
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table(columns), sink)
    return sink.getvalue().to_pybytes()
