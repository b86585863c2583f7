"""The command `germline`: thin, and quick to start because each command imports what it needs."""

import os
import sys
from typing import NoReturn

import typer

import germline
from germline.cli import genome, run
from germline.errors import InputError, printable, shorten

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (run.train, run.resume, run.fork, run.digest):
    app.command()(command)
app.add_typer(genome.app, name="genome")


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
    try:
        code = app(arguments, standalone_mode=False)
    except InputError as error:
        _fail(str(error))
    except typer.TyperException as error:
        _fail(error.format_message())
    except OSError as error:
        if sys.stdout is not None:
            # Output that was not taken would fail once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _fail(f"{error.filename or 'standard output'}: {error.strerror or error}")
    sys.exit(code)


def _fail(message: str) -> NoReturn:
    # Help that was shown for lack of arguments comes with no message.
    if message:
        typer.echo(f"germline: {printable(shorten(message))}", err=True)
    sys.exit(2)
