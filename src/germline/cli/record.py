"""`germline record`: films of the champions of a run, one after another."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from germline import device as devices
from germline.cli import options
from germline.cli.options import Run, Trust
from germline.cli.options.individual import Cap, Seed
from germline.cli.output import films, say
from germline.cli.output.numbers import counted, number
from germline.errors import InputError

if TYPE_CHECKING:
    from germline.api import Run as Past
    from germline.run.score import Scores


def record(
    run: Run,
    every: Annotated[int, typer.Option(min=1, help="Film every so many generations.")],
    out: Annotated[
        Path | None, typer.Option(help="The folder of the films; RUN/media if not given.")
    ] = None,
    seed: Seed = 0,
    cap: Cap = None,
    ending: Annotated[Literal["gif", "mp4"], typer.Option(help="What is written.")] = "gif",
    force: Annotated[bool, typer.Option("--force", help="Replace films that are there.")] = False,
    trust: Trust = False,
) -> None:
    """Film the champion of every N-th generation, and of the last."""
    films.check("record")
    devices.offscreen()
    with options.signals() as caught:
        options.prepare(trust)
        from germline import api, disk

        past = api.Run(run, trust=trust)
        reports = past.reports
        if not reports:
            raise InputError(f"{run}: has no champion yet: no generation is finished")
        done: dict[str, tuple[Path, Scores]] = {}
        with _made(out or run / "media") as folder:
            for report in [*reports[:-1:every], reports[-1]]:
                name = report.champion
                path = folder / f"generation-{report.generation:06}-{name}.{ending}"
                if path.exists() and not force:
                    say(f"{path}: is there already; --force films it again")
                    continue
                if name in done:  # who was champion before plays the same episode again
                    scores = done[name][1]
                    disk.write_atomically(path, done[name][0].read_bytes())
                else:
                    scores = _filmed(past, name, path, seed, cap, caught)
                done[name] = path, scores
                steps = counted(scores.steps[0], "step")
                say(f"{path}: score {number(scores.returns[0])} in {steps}")


@contextmanager
def _made(folder: Path) -> Iterator[Path]:
    """A folder that is there, or that is made and stays if anything comes to be in it."""
    there = folder.is_dir()
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}") from None
    try:
        yield folder
    finally:
        if not there:
            with suppress(OSError):
                folder.rmdir()


def _filmed(
    past: "Past", name: str, path: Path, seed: int, cap: int | None, caught: list[int]
) -> "Scores":
    from germline.run.score import watch

    with films.Film(path, replace=True) as film:
        return watch(
            past.individual(name),
            film.show,
            drawn=True,
            seed=seed,
            cap=cap,
            imports=past.spec.imports,
            trust=past.trust,
            stopped=lambda: bool(caught),
        )
