"""`germline presets`: specs that are ready to run."""

from typing import Annotated

import typer

from germline.cli.options import AsJson, completion
from germline.cli.output import console, say, say_json, table
from germline.cli.output.numbers import number


def presets(
    name: Annotated[
        str | None,
        typer.Argument(help="Print this one's spec.", autocompletion=completion.preset),
    ] = None,
    json: AsJson = False,
) -> None:
    """List the presets, or print the spec of one, to start your own from."""
    from germline import paper, presets
    from germline.run import outline

    if name is not None:
        text = presets.text(name)
        if json:
            say_json(presets.read(name))
        else:
            typer.echo(text, nl=False)
        return
    found = []
    for known in presets.names():
        spec = presets.read(known)
        algorithm = spec.algorithm["name"]
        published = paper.target(spec.task, algorithm, spec.stop.frames)
        found.append(
            {
                "name": known,
                "task": outline.subject(spec.task),
                "algorithm": algorithm,
                "target": published if spec.stop.score is None else spec.stop.score,
                "about": presets.about(known),
            }
        )
    if json:
        say_json(found)
        return
    listed = table("preset", "target", "what is learned", right=("target",))
    for facts in found:
        target = "" if facts["target"] is None else number(facts["target"])
        listed.add_row(facts["name"], target, facts["about"])
    console().print(listed)
    say("Begin one with: germline train NAME")
