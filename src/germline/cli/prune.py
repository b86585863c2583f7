"""`germline prune`: a small copy of a run, to hand on and to go on with."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from germline.cli import options
from germline.cli.options import AsJson, Include, Run, Trust
from germline.cli.output import say, say_json
from germline.cli.output.numbers import counted


def prune(
    run: Run,
    out: Annotated[Path, typer.Option(help="The folder of the copy, which must not be there yet.")],
    include: Include = "",
    trust: Trust = False,
    json: AsJson = False,
) -> None:
    """Write a small copy of a run, without those that nobody descends from, to go on with."""
    options.prepare(trust)
    from germline.run import handover
    from germline.run import prune as pruning
    from germline.run import spec as specs
    from germline.run.stop import Stop

    found = pruning.prune(run, out, include=handover.asked(include), trust=trust)
    if json:
        say_json({"run": str(out), "origin": str(run), **found._asdict()})
        return
    kept, lived = found.individuals
    more = options.trusted(trust)
    if specs.of_run(out).stop == Stop():
        more += " --set stop.generations=N, for without its costs nothing ends it"
    say(
        f"{out}: {counted(found.generations, 'generation')}, {kept:,} of "
        f"{counted(lived, 'individual')}, {found.bytes / 1e6:,.2f} MB. "
        f"Go on with: germline resume {shlex.quote(str(out))}{more}"
    )
