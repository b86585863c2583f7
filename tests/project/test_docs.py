"""Every setting that can be written is on a page."""

import re
from pathlib import Path

import msgspec

from germline import algorithms, policies, tasks
from germline.backends import registry
from germline.cli.options import Backend
from germline.operators import SPELLINGS
from germline.run.spec import Engine, Spec, Stop
from samples import OPERATORS

DOCS = Path(__file__).parent.parent.parent / "docs"


def ours(room):
    """What Germline itself has registered, by name; other tests register things of their own."""
    homes = {
        name: getattr(kind, "score", kind).__module__
        for name, kind in room.registry._registry.items()
    }
    return {
        name: room.registry._registry[name]
        for name, home in homes.items()
        if home.startswith("germline.")
    }


WRITTEN = [
    ("runs.md", Spec, ""),
    ("runs.md", Stop, "stop."),
    ("runs.md", Engine, "backend."),
    *(("tasks.md", kind, "") for kind in ours(tasks).values()),
    *(("policies.md", kind, "") for kind in ours(policies).values()),
    *(("algorithms.md", type(algorithms.make(name, {})), "") for name in algorithms.names()),
]
NAMED = [
    *(("tasks.md", name) for name in ours(tasks)),
    *(("policies.md", name) for name in ours(policies)),
    *(("genome.md", name) for name in ours(policies)),
    *(("algorithms.md", name) for name in algorithms.names()),
]


def lacking(written):
    """Of (page, text) pairs, those whose text is not on the page."""
    pages = {page: (DOCS / page).read_text() for page in {page for page, _ in written}}
    return [(page, text) for page, text in written if text not in pages[page]]


def test_every_setting_is_documented():
    tables = {"task", "policy", "algorithm", "stop", "backend"}
    fields = [
        (page, f"[{field.name}]" if field.name in tables else f"`{table}{field.name}`")
        for page, kind, table in WRITTEN
        for field in msgspec.structs.fields(kind)
    ]
    assert lacking(fields) == []


def test_everything_registered_is_named():
    assert {page for page, _ in NAMED} == {"tasks.md", "policies.md", "genome.md", "algorithms.md"}
    assert lacking([(page, f"`{name}`") for page, name in NAMED]) == []


ADDRESSES = [*registry.ALONE, *(s + "://" for kind in registry.ENGINES for s in kind.schemes)]


def test_every_engine_is_named():
    pages = ("clusters.md", "commands.md")
    assert lacking([(page, f"`{name}") for page in pages for name in ADDRESSES]) == []


def test_every_engine_with_a_name_of_its_own_is_a_setting():
    (row,) = re.findall(r"^\| `backend\.name` \|.*", (DOCS / "runs.md").read_text(), re.M)
    assert [name for name in registry.ALONE if f'`"{name}"`' not in row] == []
    (about,) = Backend.__metadata__
    assert set(registry.ALONE) <= set(about.metavar.split("|"))


def test_every_operator_is_named():
    names = {text.partition(":")[0] for text in OPERATORS}
    for page in ("genome.md", "glossary.md"):
        assert names <= set(re.findall(r"`([a-z]+)[`:]", (DOCS / page).read_text())), page
    assert names <= set(re.findall(r"\w+", SPELLINGS))


def test_tasks_that_are_environments_themselves_are_listed():
    """Those that need no settings."""
    from germline.cli import envs

    fields = {name: msgspec.structs.fields(kind) for name, kind in ours(tasks).items()}
    complete = [name for name, found in fields.items() if not any(f.required for f in found)]
    assert [row["id"] for row in envs._own()] == sorted(complete)
