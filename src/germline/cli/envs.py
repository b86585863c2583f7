"""`germline envs`: what can be trained on here."""

from typing import Annotated, Any

import typer

from germline.cli.options import AsJson
from germline.cli.output import console, say, say_json, table
from germline.errors import InputError, printable
from germline.settings import nearest

EXTRAS = {"box2d": "Box2D", "mujoco": "mujoco"}  # of Gymnasium's own, and what they bring


def envs(
    pattern: Annotated[str | None, typer.Argument(help="Only those with this in their id.")] = None,
    json: AsJson = False,
) -> None:
    """List the environments that can be trained on here, and what would add more."""
    every = [*_own(), *_host(), *_device()]
    found = [row for row in every if pattern is None or pattern.lower() in row["id"].lower()]
    if not found:
        ids = sorted({row["id"] for row in every})
        raise InputError(f"{pattern!r} is in no environment's id; {_near(pattern or '', ids)}")
    if json:
        say_json(found)
        return
    listed = table("id", "task", "from", "needs")
    for row in found:
        suite = f", suite = {row['suite']}" if row["suite"] else ""
        listed.add_row(
            printable(row["id"]), f"{row['task']}{suite}", row["origin"], row["needs"] or ""
        )
    console().print(listed)
    if pattern is None:
        for missing, needs in _absent().items():
            say(f"{missing}: not here, add with: {needs}")


def _near(name: str, ids: list[str]) -> str:
    hint = nearest(name, ids)
    return hint if hint.startswith("did") else "germline envs lists all of them"


def _own() -> list[dict[str, Any]]:
    """Tasks that are environments themselves."""
    names = ("bandit", "maze", "memorize", "saccade")
    return [
        {"id": name, "task": name, "suite": None, "origin": "germline", "needs": None}
        for name in names
    ]


def _host() -> list[dict[str, Any]]:
    """What Gymnasium knows, the newest version of each."""
    import importlib.util

    import gymnasium

    if importlib.util.find_spec("ale_py"):
        import ale_py

        gymnasium.register_envs(ale_py)
    newest: dict[tuple[str | None, str], Any] = {}
    for entry in gymnasium.registry.values():
        if entry.id.startswith(("GymV", "phys2d", "tabular")):
            continue
        known = newest.get((entry.namespace, entry.name))
        if known is None or (entry.version or 0) > (known.version or 0):
            newest[entry.namespace, entry.name] = entry
    rows = []
    for entry in newest.values():
        origin = str(entry.entry_point).partition(":")[0].split(".")
        kind = origin[2] if origin[:2] == ["gymnasium", "envs"] else origin[0]
        missing = kind in EXTRAS and not importlib.util.find_spec(EXTRAS[kind])
        needs = f"pip install 'germline[{kind}]'" if missing else None
        if origin[0] != "gymnasium":
            needs = f'imports = ["{origin[0]}"]'
        rows.append({"id": entry.id, "task": "gym", "suite": None, "origin": kind, "needs": needs})
    return sorted(rows, key=lambda row: (row["needs"] or "", row["origin"], row["id"]))


def _device() -> list[dict[str, Any]]:
    """What runs on the device."""
    from germline.tasks.suites import known

    rows = []
    for suite, (ids, needs) in known().items():
        rows += [
            {"id": i, "task": "functional", "suite": suite, "origin": suite, "needs": needs}
            for i in ids
        ]
    return rows


def _absent() -> dict[str, str]:
    """Suites of which nothing is known here, and what would add them."""
    import importlib.util

    from germline.tasks.suites import known

    found = {suite: needs for suite, (_, needs) in known().items() if needs is not None}
    if not importlib.util.find_spec("ale_py"):
        found["Atari"] = "pip install 'germline[atari]'"
    return found
