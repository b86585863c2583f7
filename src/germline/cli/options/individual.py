"""Who is meant by GENOME or RUN or RUN:ID, and what it is to play."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from germline.cli.options import completion
from germline.errors import InputError

if TYPE_CHECKING:
    from germline.files import GenomeFile
    from germline.layout import Layout

Where = Annotated[
    str,
    typer.Argument(
        metavar="GENOME|RUN[:ID]",
        help="A genome file, a run (its champion), or one of its individuals by its id's start.",
        autocompletion=completion.individual,
    ),
]
Environment = Annotated[
    str | None, typer.Option("--env", help="Play this Gymnasium environment instead of its own.")
]
Imports = Annotated[
    list[str] | None,
    typer.Option("--import", help="A module that registers its task or policy; needs --trust."),
]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Which fresh episodes.")]
Cap = Annotated[
    int | None, typer.Option(min=1, max=2**24, help="End an episode after so many steps.")
]


class Individual(NamedTuple):
    """An individual to play, and the modules that its run imports."""

    file: "GenomeFile"
    imports: tuple[str, ...]


def find(where: str, *, trust: bool) -> Individual:
    """Read the file, or rebuild the individual from its run."""
    found = _of_run(where, trust=trust)
    if found is not None:
        return found
    if Path(where).is_dir():
        raise InputError(f"{where}: is a folder without a run; see germline runs")
    return Individual(read(Path(where))[0], ())


def load(where: str, env: str | None, imports: Sequence[str], *, trust: bool) -> Individual:
    """Find an individual that can be played."""
    from dataclasses import replace

    from germline import evaluate, files
    from germline.run import score

    evaluate.load(imports, trust=trust)
    found = find(where, trust=trust)
    found = found._replace(imports=(*found.imports, *imports))
    file = found.file
    if env is not None:
        task = files.TaskRef("gym", {"id": env})
        found = found._replace(file=replace(file, task=task))
    elif file.task is None:
        raise InputError(f"{where}: names no task; say what to play with --env, as in CartPole-v1")
    try:
        score.check(found.file)
    except InputError as error:
        raise InputError(str(error) if where in str(error) else f"{where}: {error}") from None
    return found


def read(path: Path) -> "tuple[GenomeFile, Layout]":
    """A genome file and its layout, once everything in it fits together."""
    from germline import files, operators, policies

    if (path / "run.db").exists():
        raise InputError(
            f"{path}: is a run; write its champion with: germline export genome {path}"
        )
    source = files.read(path)
    try:
        policy = source.genome.policy
        layout = policies.layout_of(policy)
        if source.arithmetic == "exact" and "steps" not in policy.settings:
            raise InputError(f"arithmetic: exact needs the steps and shifts of {policy.name}")
        for operator in {gene.operator for gene in source.genome.genes}:
            operators.check(operators.parse(operator), layout)
        if source.weights is not None and len(source.weights) != 4 * layout.size:
            found = len(source.weights) // 4
            raise InputError(f"root: has {found:,} weights; the layout has {layout.size:,}")
    except InputError as error:
        raise InputError(about(path, error)) from None
    return source, layout


def about(path: Path, error: Exception) -> str:
    """The message of an error, with the file it is about."""
    return str(error) if str(error).startswith(f"{path}: ") else f"{path}: {error}"


def _of_run(where: str, *, trust: bool) -> Individual | None:
    folder, colon, name = where, "", ""
    if not where:
        raise InputError("'' names neither a genome nor a run")
    if not Path(where).exists():
        folder, colon, name = where.rpartition(":")
    if not (Path(folder) / "run.db").exists():
        if colon and folder:
            raise InputError(f"{folder}: is not a run: it has no run.db")
        return None
    from germline.api import Run

    run = Run(folder, trust=trust)
    return Individual(run.individual(name) if name else run.champion, run.spec.imports)
