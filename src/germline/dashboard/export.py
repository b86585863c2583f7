"""A run as one HTML file that opens from disk: the page, and in it what it would ask for.

The same page as the dashboard's finds its answers in itself. Names are data there too: nothing
that a run holds is ever read as HTML or as a script.
"""

import base64
import dataclasses
import hashlib
import html
import re
import struct
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import msgspec

from germline.dashboard.answers import about_individual, about_run, schema
from germline.dashboard.assets import page
from germline.dashboard.films.messages import PICTURES
from germline.dashboard.films.pool import Players
from germline.dashboard.library import Library, View
from germline.errors import InputError
from germline.run import columns, handover, history
from germline.run import spec as specs

MAX_FILM = 2**25  # bytes
MAX_KIN = 2**22  # bytes about ancestors of the champion
MAX_CLOUD = 20_000  # points of the last population
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


def export(
    folder: Path,
    *,
    film: bool = True,
    include: Collection[str] = (),
    warn: Callable[[str], None],
) -> bytes:
    """The file of a run; `warn` hears why there is no film, if one was wanted.

    Of what `handover` names there is only what is in `include`.
    """
    if not (folder / "run.db").is_file():
        raise InputError(f"{folder}: is not a run: it has no run.db")
    library = Library(folder)
    key = library.key(library.folder)
    with library.open(key) as view:
        if not view.progress:
            raise InputError(f"{folder}: has nothing to show yet: no generation is finished")
        found = _answers(view, include)
        champion = view.progress[-1][0].champion
        own = [born.id for born in view.store.ancestry(champion)]
    if film:
        try:
            with Players(1) as players:
                found |= _films(players, library.folder, f"/api/runs/{key}", own[-2:])
        except InputError as error:
            warn(f"without a film: {library.within(error)}")
    return _written(library.name(key), found)


def _answers(view: View, include: Collection[str]) -> dict[str, Any]:
    """What the page asks for, by path."""
    start, champion = f"/api/runs/{view.key}", view.progress[-1][0].champion
    while view.read() < 1:
        pass
    found: dict[str, Any] = {
        start: _run(view, include),
        f"{start}/curves?points=2000": _curves(view, include),
        f"{start}/bands?points=200": about_run.bands(view, 200),
        f"{start}/workers": _workers(view, include),
        f"{start}/lineage/{champion}": about_individual.lineage(view, champion),
    }
    left = MAX_KIN
    reports = [report for report, _ in view.progress]
    for born in reversed(history.line(view.store, champion, reports)):
        told = about_individual.individual(view, born.id)
        told = dataclasses.replace(told, failure=handover.failure(told.failure, include))
        answer = msgspec.json.encode(told)
        left -= len(answer)
        if left < 0 and born.id != champion:
            break
        found[f"{start}/individuals/{born.id}"] = msgspec.Raw(answer)
    last = view.progress[-1][0]
    if last.generation >= view.whole and last.evaluations <= MAX_CLOUD:
        names = columns.names(view.store, view.finished, last.generation)
        x = "behaviour.0" if "behaviour.0" in names else "steps"
        path = f"{start}/population/{last.generation}?x={x}&y=fitness"
        found[path] = about_run.population(view, last.generation, x, "fitness")
    return found


def _run(view: View, include: Collection[str]) -> schema.Run:
    told = about_run.run(view)
    spec = handover.spec(specs.of_run(view.store.folder), include)
    sessions = [
        dataclasses.replace(each, about=handover.session(each.about, include))
        for each in told.sessions
    ]
    if not handover.KINDS.keys() <= set(include):  # comments in the file may say anything
        told = dataclasses.replace(told, spec=specs.to_toml(spec))
    told = dataclasses.replace(told, sessions=sessions)
    if "costs" in include:
        return told
    by = "cost" if (told.finished_by or "").startswith("cost ") else told.finished_by
    return dataclasses.replace(told, cost=0.0, cost_to_go=None, finished_by=by)


def _curves(view: View, include: Collection[str]) -> schema.Curves:
    told = about_run.curves(view, 2000)
    if "costs" not in include:
        del told.columns["cost"]
    return told


def _workers(view: View, include: Collection[str]) -> schema.Workers:
    told = about_run.workers(view)
    there = {text: number for number, text in view.store.texts.items()}
    names = handover.workers(view.store, include)
    workers = [
        dataclasses.replace(each, name=names.get(there.get(each.name, 0), each.name))
        for each in told.workers
    ]
    return dataclasses.replace(told, workers=workers)


def _films(players: Players, folder: Path, start: str, names: list[str]) -> dict[str, Any]:
    """Films of the champion and its parent, the champion's file and digest."""
    found: dict[str, Any] = {}
    champion = names[-1]
    about = schema.Weights(*players.weights(folder, champion))
    found[f"{start}/individuals/{champion}/weights"] = about
    found[f"{start}/individuals/{champion}/genome"] = _text(players.genome(folder, champion)[0])
    for name in reversed(names):
        data = b"".join(players.film(folder, name, 0, PICTURES))
        if (reason := _refusal(data)) is not None:
            raise InputError(reason)
        if len(data) > MAX_FILM:
            continue
        found[f"{start}/individuals/{name}/film?seed=0&pictures={PICTURES}"] = _text(data)
    return found


def _refusal(film: bytes) -> str | None:
    """What a film says that is an error from its first record on."""
    length, _ = struct.unpack_from(">II", film)
    return msgspec.json.decode(film[8 : 8 + length]).get("detail")


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _written(name: str, found: dict[str, Any]) -> bytes:
    """The page with its style, its scripts and its answers inside, and leave for nothing else."""
    files = {name: data.decode() for name, (data, _) in page().items()}
    charts, style = _harmless(files["plotly.js"]), files["style.css"]
    script = _harmless(bundle(files))
    # As text of a script that is none, it must not seem to end it.
    data = msgspec.json.encode(found).decode().replace("<", "\\u003c")
    policy = (
        f"default-src 'none'; script-src {_hash(charts)} {_hash(script)}; "
        f"style-src {_hash(style)}; img-src blob: data:; base-uri 'none'; form-action 'none'"
    )
    parts = {
        '<meta charset="utf-8">': '<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        "<title>Germline</title>": f"<title>{html.escape(name)} · Germline</title>",
        '<link rel="stylesheet" href="/page/style.css">': f"<style>{style}</style>",
        '<script type="module" src="/page/main.js"></script>': f"<script>{charts}</script>\n"
        f'<script type="application/json" id="answers">{data}</script>\n'
        f'<script type="module">{script}</script>',
    }
    text = files["index.html"]
    for old, new in parts.items():
        before, there, after = text.partition(old)
        assert there, old
        text = before + new + after
    return text.encode()


def bundle(files: dict[str, str], first: str = "main.js") -> str:
    """All modules as one: what is imported stands before whoever imports it, each once."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name not in order:
            for other in _IMPORT.findall(files[name]):
                visit(other)
            order.append(name)

    visit(first)
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", files[name])) for name in order)


def _harmless(script: str) -> str:
    """A script that HTML does not take for its own end; in strings it means the same."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
