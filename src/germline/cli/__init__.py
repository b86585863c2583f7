"""The command `germline`: thin, and quick to start because each command imports what it needs."""

import io
import os
import sys
from itertools import pairwise
from typing import Any, NoReturn

import typer

import germline
from germline.address import redact
from germline.cli import (
    catalogue,
    dashboard,
    deploy,
    doctor,
    export,
    genome,
    imports,
    play,
    prune,
    record,
    reproduce,
    show,
    slurm,
    sweep,
    train,
    worker,
)
from germline.errors import InputError, printable, shorten

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
PANELS: dict[str, dict[str, Any]] = {
    "Evolve": {
        "train": train.train,
        "resume": train.resume,
        "fork": train.fork,
        "reproduce": reproduce.reproduce,
        "sweep": sweep.sweep,
        "worker": worker.worker,
        "status": worker.status,
    },
    "Clusters": {"slurm": slurm.slurm, "deploy": deploy.deploy},
    "Look": {
        "show": show.show,
        "runs": show.runs,
        "dashboard": dashboard.dashboard,
        "play": play.play,
        "record": record.record,
        "eval": play.evaluate,
        "digest": show.digest,
    },
    "Find": {"presets": catalogue.presets, "envs": catalogue.envs, "doctor": doctor.doctor},
    "Keep": {
        "prune": prune.prune,
        "export": export.app,
        "genome": genome.app,
        "import": imports.app,
    },
}
for panel, commands in PANELS.items():
    for name, command in commands.items():
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=panel)
        else:
            app.command(name, rich_help_panel=panel)(command)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"germline {germline.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Evolve deep neural networks whose every individual is a few kilobytes of seeds."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 when done, 2 with one sentence for a user's mistake."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # not every terminal has every letter
    try:
        code = app(arguments, standalone_mode=False)
    except InputError as error:
        _fail(str(error))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except typer.TyperException as error:
        _fail(_with_help(error, sys.argv[1:] if arguments is None else arguments))
    except OSError as error:
        if sys.stdout is not None:
            # Output that was not taken would fail once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _fail(f"{error.filename or 'standard output'}: {error.strerror or error}")
    sys.exit(code)


def _with_help(error: typer.TyperException, arguments: list[str]) -> str:
    """What is wrong with an invocation, what was given, and where to read what is right."""
    message, context = error.format_message(), getattr(error, "ctx", None)
    if not message or context is None:
        return message
    for option in getattr(getattr(error, "param", None), "opts", []):
        given = [b for a, b in pairwise(arguments) if a == option]
        given += [a.partition("=")[2] for a in arguments if a.startswith(f"{option}=")]
        if given and given[-1] not in message:
            message = f"{message.rstrip('.')}, given: {given[-1]}"
    names: list[str] = []
    while context.parent is not None:
        names.insert(0, context.info_name)
        context = context.parent
    path = " ".join(["germline", *names, "--help"])
    return (
        f"{message} See {path}" if message.endswith("?") else f"{message.rstrip('.')}; see {path}"
    )


def _fail(message: str) -> NoReturn:
    # Help that was shown for lack of arguments comes with no message.
    if message:
        typer.echo(f"germline: {printable(shorten(redact(message)))}", err=True)
    sys.exit(2)
