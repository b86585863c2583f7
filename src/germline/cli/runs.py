"""`germline runs`: a line for every run in a folder, and what is known of one at a glance."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from germline.cli.options import AsJson
from germline.cli.output import console, costs, say, say_json, table
from germline.cli.output.numbers import duration, number
from germline.errors import InputError, printable

if TYPE_CHECKING:
    from germline.run.store import Store


def runs(
    folder: Annotated[Path, typer.Argument(help="Where to look.")] = Path("runs"),
    json: AsJson = False,
) -> None:
    """List the runs in a folder."""
    if not folder.is_dir():
        raise InputError(f"{folder}: is not a folder; runs are begun with: germline train")
    places = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    found = [_listed(place) for place in places if (place / "run.db").exists()]
    if json:
        say_json(found)
        return
    if not found:
        say(f"{folder}: has no runs; begin one with: germline train cartpole")
        return
    damaged = [facts for facts in found if "error" in facts]
    paid = any(facts.get("cost") for facts in found)
    numbers = ("gen.", "elite", "frames", "time", *(("cost",) if paid else ()))
    listed = table("run", "task", "by", *numbers, "state", right=numbers)
    for facts in found:
        if "error" in facts:
            continue
        elite = "" if facts["elite"] is None else number(facts["elite"])
        listed.add_row(
            *(printable(str(facts[name])) for name in ("run", "task", "algorithm")),
            f"{facts['generations']:,}",
            elite,
            f"{facts['frames']:,}",
            duration(facts["seconds"]),
            *((number(facts["cost"]),) if paid else ()),
            facts["state"],
        )
    if len(damaged) < len(found):
        console().print(listed)
    for facts in damaged:
        say(facts["error"])


def _listed(folder: Path) -> dict[str, Any]:
    """The facts of a run, or why there are none: one that is damaged must not hide the others."""
    from germline.run.store import Store

    try:
        with Store.open(folder) as store:
            return facts_of(folder, store)
    except InputError as error:
        return {"run": str(folder), "error": str(error)}


def facts_of(folder: Path, store: "Store") -> dict[str, Any]:
    """What a run is and how far it has come, as fields of JSON."""
    from germline.run import outline
    from germline.run import spec as specs

    spec = specs.of_run(folder)
    progress = store.progress()
    individuals, evaluations = store.count()
    report, totals = progress[-1][0] if progress else None, store.totals()
    state = outline.state(folder, spec.stop, progress, totals)
    return {
        "run": str(folder),
        "name": spec.name,
        "seed": spec.seed,
        "task": outline.subject(spec.task),
        "policy": spec.policy["name"],
        "algorithm": spec.algorithm["name"],
        "arithmetic": spec.arithmetic,
        "state": state.name,
        "finished_by": state.finished_by,
        "individuals": individuals,
        "evaluations": evaluations,
        "pruned": store.pruned and store.pruned.generation,
        "elite": report and report.elite,
        "champion": report and report.champion,
        **totals._asdict(),
        **costs.fields(totals, state.to_go),
    }
