"""The command `germline`: thin, and quick to start because each command imports what it needs."""

import contextlib
import os
import sys
from pathlib import Path
from typing import NoReturn

import typer

import germline
from germline.cli import genome
from germline.errors import InputError, printable

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
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
    _keep_compiled_code()
    try:
        code = app(arguments, standalone_mode=False)
    except InputError as error:
        _fail(str(error))
    except typer.TyperException as error:
        _fail(error.format_message())
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("germline: stopped", err=True)
        sys.exit(130)
    except OSError as error:
        # Output not taken yet would fail once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(0)  # whoever read our output has had enough, as `head` has
        _fail(f"{error.filename or 'standard output'}: {error.strerror or error}")
    sys.exit(code)


def _keep_compiled_code() -> None:
    """Let JAX keep what it compiles in the user's cache folder, if there can be one."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "germline" / "xla"
    with contextlib.suppress(OSError, RuntimeError):
        folder.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")


def _fail(message: str) -> NoReturn:
    typer.echo(f"germline: {printable(message)}", err=True)
    sys.exit(2)
