"""How commands speak: lines, tables and JSON; names in them are data and steer no terminal.

numbers         numbers, counts and times as people read them
charts          numbers over time as text
costs           what a run costs, in words
progress        what is seen of a run while it works
sweep_progress  what is seen of a sweep
films           episodes as files
screens         episodes in a window, in the terminal, as lines
tensorboard     a run for TensorBoard
"""

import os
import sys
from typing import TYPE_CHECKING

import typer

from germline.errors import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def say(text: str) -> None:
    """Print one line."""
    typer.echo(printable(text))


def warn(text: str) -> None:
    """Print one line beside the output, for people alone."""
    typer.echo(f"germline: {printable(text)}", err=True)


def say_json(value: object) -> None:
    """Print plain data as one line of JSON; numbers that JSON lacks become null."""
    import msgspec

    typer.echo(msgspec.json.encode(value).decode())


def console() -> "Console":
    """A console that takes text as it is: brackets in a name are no markup."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def table(*columns: str, right: tuple[str, ...] = (), title: str | None = None) -> "Table":
    """A table without lines; those on the right are numbers, which are never cut."""
    from rich.table import Table

    made = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=None,
        pad_edge=False,
    )
    for name in columns:
        number = name in right
        made.add_column(
            name, justify="right" if number else "left", no_wrap=number, overflow="fold"
        )
    return made


def is_terminal() -> bool:
    """Whether output goes to a terminal that can draw."""
    if sys.stdout is None or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return False
    return (sys.stdout.encoding or "").lower().startswith("utf")
