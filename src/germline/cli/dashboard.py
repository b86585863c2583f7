"""`germline dashboard`: all runs of a folder in a browser."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from germline import address
from germline.cli import options
from germline.cli.options import Key
from germline.cli.output import say
from germline.errors import InputError

PORT = 8420
NEEDED = ("fastapi", "uvicorn", "plotly", "PIL")


def dashboard(
    runs: Annotated[
        Path, typer.Argument(help="The folder of runs; those in folders below are found too.")
    ] = Path("runs"),
    host: Annotated[
        str, typer.Option(help="The address to serve at; others than this machine's need a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = PORT,
    token_file: Annotated[
        Path | None,
        typer.Option(help="A file with the token to log in with; GERMLINE_TOKEN if not given."),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="The certificate to serve https:// with, in PEM.")
    ] = None,
    key: Key = None,
    name: Annotated[
        list[str] | None,
        typer.Option(help="A further name by which browsers ask for this machine."),
    ] = None,
    insecure: options.Insecure = False,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser, too.")] = False,
) -> None:
    """Look at runs in a browser: curves, populations, lineages, films. Nothing is changed."""
    require("dashboard")
    from germline.dashboard import server

    def ready(url: str) -> None:
        say(f"{runs} at {url} (end with Ctrl-C)")
        if open_:
            typer.launch(url)

    with options.signals():
        server.serve(
            runs,
            host=host,
            port=port,
            token=address.token(token_file),
            certificate=certificate,
            key=key,
            insecure=insecure,
            names=name or [],
            ready=ready,
        )


def require(option: str) -> None:
    """Refuse where the packages are absent; `option` is what needs them."""
    for package in NEEDED:
        if find_spec(package) is None:
            raise InputError(
                f"{option}: {package} is not here, add it with: pip install 'germline[dashboard]'"
            )
