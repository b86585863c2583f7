"""`germline import`: genomes that other systems published, as genome files of ours."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from germline.cli import options
from germline.cli.options import Force
from germline.cli.output import say
from germline.cli.output.numbers import counted
from germline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from germline.genome import Slices

app = typer.Typer(
    no_args_is_help=True, help="Turn a genome that another system published into one of ours."
)

Out = Annotated[Path, typer.Option(help="Write here; the file alone is enough to play.")]

_SEED_LIST_TASK: dict[str, Any] = {
    "skip": [2, 4],
    "pool": False,
    "size": [210, 160],
    "color": "rgb",
    "stack": 1,
    "noops": 0,
    "limit": 20_000,
}
_SEED_LIST_POLICY: dict[str, Any] = {
    "observation": [210, 160, 3],
    "filters": [16, 32],
    "kernels": [8, 4],
    "strides": [4, 2],
    "hidden": [256],
    "actions": 18,
    "padding": "same",
}


@app.command()
def seed_list(
    file: Annotated[Path, typer.Argument(help="A JSON list of seeds, or - for standard input.")],
    env: Annotated[str, typer.Option(help="What it was evolved on, such as Frostbite-v4.")],
    out: Out,
    force: Force = False,
) -> None:
    """Import a list of RandomState seeds, mutations of a network that TensorFlow 1 began."""
    from germline import disk, files
    from germline.genome import Seeds

    game = _game(env)
    disk.check_writable(out, replace=force)
    seeds = files.read_plain(file, Seeds)
    task = {"game": game, **_SEED_LIST_TASK}
    _import(seeds, task, "conv", _SEED_LIST_POLICY, out, force=force)


@app.command("uber")
def of_uber(
    file: Annotated[
        Path, typer.Argument(help="JSON with a game and genes, or - for standard input.")
    ],
    out: Out,
    force: Force = False,
) -> None:
    """Import a genome of Uber's "Deep Neuroevolution": slices of a table of noise.

    The table is 1 GB, made once and kept in the user's cache.
    """
    from germline import disk, files
    from germline.legacy import uber

    disk.check_writable(out, replace=force)
    found = files.read_plain(file, uber.Published)
    task = {"game": found.game, "resize": "bilinear"}
    _import(found.slices, task, "dqn", {"padding": "same"}, out, force=force)


def _game(env: str) -> str:
    """The name of a game in ale-py, from its id in Gymnasium."""
    if not re.fullmatch(r"([A-Z][a-z0-9]*)+-v4", env):
        raise InputError(f"--env: {env!r} is not NAME-v4, as in Frostbite-v4")
    return "_".join(re.findall("[A-Z][a-z0-9]*", env)).lower()


def _import(
    payload: "tuple[int, ...] | Slices",
    game: "Mapping[str, Any]",
    name: str,
    settings: "Mapping[str, Any]",
    out: Path,
    *,
    force: bool,
) -> None:
    """Decode once, to know the hash, and write a genome of the network that fits the game."""
    options.prepare(trust=False)
    from germline import files, legacy, policies, tasks
    from germline.genome import Genome
    from germline.tasks import fitting

    task = tasks.make("atari", game)
    try:
        spec = fitting.fit(name, settings, task.space())
    finally:
        task.close()
    layout = spec.layout()
    genome = Genome(policies.reference(name, spec), legacy.root(payload, layout))
    reference = files.TaskRef("atari", dict(game))
    files.write(out, files.GenomeFile(genome, reference), replace=force)
    say(f"{out}: {genome.id}, {counted(layout.size, 'weight')}")
