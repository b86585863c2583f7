"""A pruned run by the commands that look at runs, and go on with them."""

import json
import shutil

import pytest

from commands import ok, refused
from germline.run.store import Store
from runs import digest, run, small

LATER = ("--set", "stop.generations=5", "--quiet", "--trust")


@pytest.fixture
def whole(tmp_path):
    """A finished run."""
    run(tmp_path / "run", small())
    return tmp_path / "run"


@pytest.fixture
def pruned(whole, germline, tmp_path):
    """A copy of it."""
    ok(germline("prune", whole, "--out", tmp_path / "pruned", "--trust"))
    return tmp_path / "pruned"


def test_it_says_what_is_left_and_how_to_go_on(whole, germline, tmp_path):
    said = ok(germline("prune", whole, "--out", tmp_path / "pruned", "--trust"))
    assert said.startswith(f"{tmp_path / 'pruned'}: 3 generations, ")
    assert "of 18 individuals" in said
    assert said.endswith(f"Go on with: germline resume {tmp_path / 'pruned'} --trust\n")
    told = json.loads(
        ok(germline("prune", whole, "--out", tmp_path / "other", "--trust", "--json"))
    )
    with Store.open(tmp_path / "other") as store:
        left = store.count()
    assert told["run"] == str(tmp_path / "other")
    assert told["origin"] == str(whole)
    assert [told["individuals"][0], told["evaluations"][0]] == [*left]
    assert told["generations"] == 3


def test_it_is_resumed_like_any_other(whole, pruned, germline):
    for folder in (whole, pruned):
        ok(germline("resume", folder, *LATER))
    both = [json.loads(ok(germline("show", folder, "--json"))) for folder in (whole, pruned)]
    assert both[0]["reports"] == both[1]["reports"]
    assert both[0]["lineage"] == both[1]["lineage"]
    assert len(both[0]["reports"]) == 5


def test_what_is_there_can_be_looked_at(whole, pruned, germline, tmp_path):
    shown = [ok(germline("show", folder)).splitlines() for folder in (whole, pruned)]
    lines = [part[part.index(next(n for n in part if "lineage" in n)) :] for part in shown]
    assert lines[0][:-1] == lines[1][:-1]
    for folder in (whole, pruned):
        table = tmp_path / f"{folder.name}.csv"
        ok(germline("export", "metrics", folder, "--out", table))
    assert (tmp_path / "run.csv").read_text() == (tmp_path / "pruned.csv").read_text()
    ok(germline("export", "genome", pruned, "--trust", "--out", tmp_path / "champion.json"))
    assert "pruned" in ok(germline("runs", tmp_path))


def test_there_is_no_digest_of_it(whole, pruned, germline):
    assert refused(germline("digest", pruned)) == (
        f"{pruned}: is pruned and has no digest; that of the whole run, when 3 of its generations "
        f"were finished, was {digest(whole)}"
    )


def test_what_is_missing_is_said_in_a_sentence(pruned, germline, tmp_path):
    shutil.rmtree(pruned / "blobs")
    sentence = (
        f"{pruned}: is pruned: what was played before generation 3 is not all there, and this "
        "needs it; take the run that it was pruned from"
    )
    assert refused(germline("resume", pruned, *LATER)) == sentence
    out = "--out", tmp_path / "fork"
    assert refused(germline("fork", pruned, "--generation", 3, "--trust", *out)) == sentence
    assert not (tmp_path / "fork").exists()


def test_mistakes_leave_nothing(whole, germline, tmp_path):
    assert refused(germline("prune", whole, "--out", whole, "--trust")) == (
        f"{whole}: is there already; choose another folder with --out"
    )
    assert refused(germline("prune", tmp_path, "--out", tmp_path / "new")) == (
        f"{tmp_path}: is not a run: it has no run.db"
    )
    assert "--trust" in refused(germline("prune", whole, "--out", tmp_path / "new"))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
