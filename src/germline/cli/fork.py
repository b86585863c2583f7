"""`germline fork`: another run with the first generations of one."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from germline.cli import options
from germline.cli.options import AsJson, Run, Set, Trust
from germline.cli.output import say, say_json
from germline.cli.output.numbers import counted


def fork(
    run: Run,
    generation: Annotated[int, typer.Option(min=0, help="The first generation that may differ.")],
    out: Annotated[
        Path | None, typer.Option(help="The folder of the new run; RUN-fork if not given.")
    ] = None,
    set_: Set = None,
    trust: Trust = False,
    json: AsJson = False,
) -> None:
    """Begin a run with the first generations of another, and other settings from there on."""
    options.prepare(trust)
    from germline import api
    from germline.run import fork as forking

    folder = out or api.unused(run.with_name(f"{run.resolve().name}-fork"))
    forking.fork(run, generation, folder, options.pairs(set_ or []), trust=trust)
    again = f"germline resume {shlex.quote(str(folder))}{options.trusted(trust)}"
    if json:
        say_json({"run": str(folder), "generations": generation, "origin": str(run)})
    else:
        say(f"{folder}: {counted(generation, 'generation')} of {run}. Go on with: {again}")
