"""The command `germline`: thin, and quick to start because each command imports what it needs.

A command is in the file of its name; `eval` and `import`, which are words of Python, are in
`evaluate` and `imports`:

    train, resume, fork, reproduce, sweep, worker, status   evolve
    slurm, deploy                                           on clusters
    show, runs, dashboard, play, record, evaluate, digest   look
    presets, envs, doctor                                   find
    prune, export, genome, imports                          keep

What they share:

    options/    what several commands read in the same way
    output/     how they speak: lines, tables, charts, progress, films
    bench/      how fast this machine is, for `germline doctor --bench`
"""

import io
import os
import sys
from itertools import pairwise
from typing import Any, NoReturn

import typer

import germline
from germline.address import redact
from germline.cli import (
    dashboard,
    deploy,
    digest,
    doctor,
    envs,
    evaluate,
    export,
    fork,
    genome,
    imports,
    play,
    presets,
    prune,
    record,
    reproduce,
    resume,
    runs,
    show,
    slurm,
    status,
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
        "resume": resume.resume,
        "fork": fork.fork,
        "reproduce": reproduce.reproduce,
        "sweep": sweep.sweep,
        "worker": worker.worker,
        "status": status.status,
    },
    "Clusters": {"slurm": slurm.slurm, "deploy": deploy.deploy},
    "Look": {
        "show": show.show,
        "runs": runs.runs,
        "dashboard": dashboard.dashboard,
        "play": play.play,
        "record": record.record,
        "eval": evaluate.evaluate,
        "digest": digest.digest,
    },
    "Find": {"presets": presets.presets, "envs": envs.envs, "doctor": doctor.doctor},
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
