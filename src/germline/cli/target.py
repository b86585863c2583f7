"""GENOME or RUN or RUN:ID, as people write it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from germline.cli import options
from germline.errors import InputError

if TYPE_CHECKING:
    from germline.files import GenomeFile

Where = Annotated[
    str,
    typer.Argument(
        metavar="GENOME|RUN[:ID]",
        help="A genome file, a run (its champion), or one of its individuals by its id's start.",
        autocompletion=options.complete_run,
    ),
]
Environment = Annotated[
    str | None, typer.Option("--env", help="Play this Gymnasium environment instead of its own.")
]


class Target(NamedTuple):
    """An individual to play, and the modules that its run imports."""

    file: "GenomeFile"
    imports: tuple[str, ...]


def find(where: str, *, trust: bool) -> Target:
    """Read the file, or rebuild the individual from its run."""
    from germline.cli import genome

    target = _of_run(where, trust=trust)
    if target is not None:
        return target
    if Path(where).is_dir():
        raise InputError(f"{where}: is a folder without a run; see germline runs")
    return Target(genome.load(Path(where))[0], ())


def load(where: str, env: str | None, *, trust: bool) -> Target:
    """Find an individual that can be played."""
    from dataclasses import replace

    from germline import files

    target = find(where, trust=trust)
    file = target.file
    if env is not None:
        task = files.TaskRef("gym", {"id": env})
        target = target._replace(file=replace(file, task=task))
    elif file.task is None:
        raise InputError(f"{where}: names no task; say what to play with --env, as in CartPole-v1")
    _check(target.file, trust=trust, imports=target.imports)
    return target


def _of_run(where: str, *, trust: bool) -> Target | None:
    folder, colon, name = where, "", ""
    if not Path(where).exists():
        folder, colon, name = where.rpartition(":")
    if not (Path(folder) / "run.db").exists():
        if colon and folder:
            raise InputError(f"{folder}: is not a run: it has no run.db")
        return None
    from germline.api import Run

    run = Run(folder, trust=trust)
    return Target(run.individual(name) if name else run.champion, run.spec.imports)


def _check(file: "GenomeFile", *, trust: bool, imports: tuple[str, ...]) -> None:
    """Refuse what cannot be played, before workers are started for it."""
    from germline import policies, tasks
    from germline.evaluate import load
    from germline.tasks import fitting

    load(imports, trust=trust)
    assert file.task is not None
    task = tasks.make(file.task.name, file.task.settings)
    space = task.space()
    task.close()
    if space is not None:
        policy = file.genome.policy
        fitting.check(policies.make(policy.name, policy.settings), space)
