"""Every setting that can be written is on a page."""

import re
from pathlib import Path

import msgspec
import pytest

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


@pytest.mark.parametrize(("page", "kind", "table"), WRITTEN, ids=lambda part: str(part)[-20:])
def test_every_setting_is_documented(page, kind, table):
    text = (DOCS / page).read_text()
    tables = {"task", "policy", "algorithm", "stop", "backend"}
    for field in msgspec.structs.fields(kind):
        name = f"`{table}{field.name}`"
        if field.name in tables:
            name = f"[{field.name}]"
        assert name in text, f"{page} does not speak of {name}"


@pytest.mark.parametrize(("page", "name"), NAMED, ids=str)
def test_everything_registered_is_named(page, name):
    assert f"`{name}`" in (DOCS / page).read_text()


ADDRESSES = [*registry.ALONE, *(s + "://" for kind in registry.ENGINES for s in kind.schemes)]


@pytest.mark.parametrize("name", ADDRESSES)
@pytest.mark.parametrize("page", ["clusters.md", "commands.md"])
def test_every_engine_is_named(page, name):
    assert f"`{name}" in (DOCS / page).read_text()


@pytest.mark.parametrize("name", registry.ALONE)
def test_every_engine_with_a_name_of_its_own_is_a_setting(name):
    (row,) = re.findall(r"^\| `backend\.name` \|.*", (DOCS / "runs.md").read_text(), re.M)
    assert f'`"{name}"`' in row
    (about,) = Backend.__metadata__
    assert name in about.metavar.split("|")


@pytest.mark.parametrize("name", sorted({text.partition(":")[0] for text in OPERATORS}))
def test_every_operator_is_named(name):
    for page in ("genome.md", "glossary.md"):
        assert re.search(rf"`{name}[`:]", (DOCS / page).read_text()), page
    assert re.search(rf"\b{name}\b", SPELLINGS)


def test_tasks_that_are_environments_themselves_are_listed():
    """Those that need no settings."""
    from germline.cli import envs

    fields = {name: msgspec.structs.fields(kind) for name, kind in ours(tasks).items()}
    complete = [name for name, found in fields.items() if not any(f.required for f in found)]
    assert [row["id"] for row in envs._own()] == sorted(complete)
