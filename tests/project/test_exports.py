"""What is handed on tells neither where it was made nor what it cost, unless asked."""

import base64
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from pyarrow import parquet

from commands import ok, refused
from evolution import POLICY
from germline import algorithms
from germline.algorithms.async_state import Trial
from germline.messages import Evaluation, Failure
from germline.run import handover
from germline.run.handover import KINDS
from germline.run.store import Store
from runs import CARTPOLE, run, small, write
from servers import free_port

TLS = Path(__file__).parent.parent / "golden" / "tls"
HOST, FOLDER, HOME, USER = "lonely-mountain", "quiet-harbour", "green-cottage", "wandering-bard"
SIGNED = "sealed-letter.pem"
PRICE, LIMIT = 1234.5678, 98765.4321
EVERYTHING = ",".join(KINDS)


def program(*words, cwd, **options):
    own = {"HOME": str(cwd.parent / HOME), "USER": USER, "LOGNAME": USER}
    command = [sys.executable, "-m", "germline", *map(str, words)]
    return subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )


def done(process):
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """A folder with a run that a host elsewhere evaluated, with secrets in files, for money."""
    folder = tmp_path_factory.mktemp("there") / FOLDER
    folder.mkdir()
    (folder.parent / HOME).mkdir()
    shutil.copy(TLS / "certificate.pem", folder / SIGNED)
    shutil.copy(TLS / "key.pem", folder / "key.pem")
    (folder / "token").write_text("open-sesame")
    cost = {"backend.price": PRICE, "stop.cost": LIMIT, "stop.generations": 2}
    write(folder / "spec.toml", CARTPOLE | cost)
    url = f"grpc://localhost:{free_port()}"
    secure = "--certificate", folder / SIGNED, "--key", folder / "key.pem"
    token = "--token-file", folder / "token"
    words = "train", "spec.toml", "--backend", url, *secure, *token, "--quiet", "--out", "run"
    master = program(*words, cwd=folder)
    host = "--name", HOST, "--processes", 1, "--authority", folder / SIGNED
    worker = program("worker", url, *host, *token, "--max-idle", 60, cwd=folder)
    try:
        done(master)
    finally:
        master.kill()
        worker.terminate()
        worker.communicate(timeout=300)
    return folder


def secrets(folder):
    """By what the run would be known: hosts, paths, people, prices and costs, as they are kept."""
    with Store.open(folder / "run") as store:
        assert any(text.startswith(HOST) for text in store.texts.values())
        costs = [totals.cost for _, totals in store.progress()]
    assert all(costs)
    numbers = [PRICE, LIMIT, *costs]
    kept = {"hosts": {HOST, "localhost"}, "paths": {FOLDER, SIGNED}}
    kept["costs"] = {repr(number) for number in numbers}
    kept["people"] = {HOME, USER}
    if len(os.uname().nodename) > 8:  # a shorter name may be anywhere by chance
        kept["people"].add(os.uname().nodename)
    found = {kind: {text.encode() for text in texts} for kind, texts in kept.items()}
    found["costs"] |= {struct.pack(">d", number) for number in numbers}
    return found


def unpacked(path):
    """The bytes of a file, and of what is packed in it."""
    data = path.read_bytes()
    yield data
    if path.suffix == ".html":
        told = re.search(rb'<script type="application/json"[^>]*>(.*?)</script>', data, re.DOTALL)
        yield from (
            base64.b64decode(answer)
            for answer in json.loads(told[1]).values()
            if isinstance(answer, str)
        )
    if path.suffix == ".parquet":
        table = parquet.read_table(path)
        yield repr((table.to_pydict(), table.schema.metadata)).encode()


def leaks(folder, known):
    """Which of what is known is in which file, or its name."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return {
        (path.name, text)
        for path in files
        for part in (str(path.relative_to(folder)).encode(), *unpacked(path))
        for text in known
        # A number may be the end of another.
        if re.search(rb"(?<![0-9])" * text[:1].isdigit() + re.escape(text), part)
    }


EXPORTS = {
    "genome": "export genome {run} --out champion.json",
    "weights": "export weights {run} --out champion.safetensors",
    "metrics": "export metrics {run} --out metrics.csv",
    "metrics as parquet": "export metrics {run} --out metrics.parquet",
    "evaluations": "export evaluations {run} --out evaluations.csv",
    "evaluations as parquet": "export evaluations {run} --out evaluations.parquet",
    "page": "export html {run} --out page.html",
    "pruned": "prune {run} --out pruned",
    "film": "play {run} --out film.gif --cap 5",
    "video": "play {run} --out film.mp4 --cap 5",
    "films": "record {run} --every 1 --out films --cap 5",
    "files for a cluster": "deploy kubernetes {run}/../plain.toml --out cluster",
}


@pytest.mark.slow
def test_nothing_that_is_handed_on_tells_where_it_was_made_or_what_it_cost(there, tmp_path):
    known = secrets(there)
    write(there / "plain.toml", CARTPOLE)
    for words in EXPORTS.values():
        line = words.format(run=there / "run").split()
        done(program(*line, cwd=Path(there.parent, HOME)))
    made = there.parent / HOME
    shutil.rmtree(made / ".cache", ignore_errors=True)
    assert leaks(made, set.union(*known.values())) == set()
    # The test itself can see all of it where it is.
    visible = known["hosts"] | known["paths"] | {repr(PRICE).encode(), repr(LIMIT).encode()}
    assert {text for _, text in leaks(there, visible)} == visible


@pytest.mark.slow
def test_it_is_there_when_it_is_asked_for(there, tmp_path):
    known, asked = secrets(there), ("--include", EVERYTHING)
    for words in ("prune {run} --out pruned", "export html {run} --out page.html --no-film"):
        line = words.format(run=there / "run").split()
        place = tmp_path / line[0]
        place.mkdir()
        done(program(*line, *asked, cwd=place))
        found = {text for _, text in leaks(place, set.union(*known.values()))}
        assert known["hosts"] | known["paths"] <= found
        assert {repr(PRICE).encode(), repr(LIMIT).encode()} <= found
        assert len(found & known["costs"]) >= 4
        assert not found & known["people"]
    table = "export", "metrics", there / "run", "--out", tmp_path / "metrics.csv"
    done(program(*table, "--include", "costs", cwd=tmp_path))
    assert "total_cost" in (tmp_path / "metrics.csv").read_text()


@pytest.mark.slow
def test_a_pruned_copy_goes_on_anywhere(there, tmp_path):
    words = "prune", there / "run", "--out", tmp_path / "pruned"
    done(program(*words, cwd=tmp_path))
    more = "--set", "stop.generations=4", "--quiet"
    done(program("resume", tmp_path / "pruned", "--backend", "serial", *more, cwd=tmp_path))
    shutil.copytree(there / "run", tmp_path / "whole")
    done(program("resume", tmp_path / "whole", "--backend", "serial", *more, cwd=tmp_path))
    with Store.open(tmp_path / "whole") as whole, Store.open(tmp_path / "pruned") as pruned:
        assert whole.reports() == pruned.reports()
        assert len(pruned.reports()) == 4
        assert pruned.totals().cost == 0


def test_what_a_failure_said_stays_unless_it_is_asked_for(tmp_path, germline):
    run(tmp_path / "run", small({"task.name": "brittle"}, "es"))
    said = "ZeroDivisionError: float division by zero"
    for include, failure in (("", "ZeroDivisionError"), (EVERYTHING, said)):
        out = tmp_path / f"{bool(include)}.csv"
        words = "export", "evaluations", tmp_path / "run", "--out", out, "--include", include
        ok(germline(*words))
        assert {line.rpartition(",")[2] for line in out.read_text().splitlines()[1:]} == {
            failure,
            "",
        }
        copy = tmp_path / f"copy-{bool(include)}"
        ok(germline("prune", tmp_path / "run", "--out", copy, "--trust", "--include", include))
        with Store.open(copy) as store:
            assert {scored.failure for scored in store.scores()} <= {None, failure}


def test_nor_does_the_state_of_an_algorithm():
    """One without a barrier keeps what its candidates were told."""
    algorithm = algorithms.make("async-ga", {"population": 4, "candidates": 2})
    state = algorithm.start(1, POLICY)
    key = algorithm.ask(state)[0].key
    told = {
        0: Evaluation(key, (1.0,), (1,), (1,), "t", worker=f"{HOST}/process-0"),
        1: Failure(key, f"OSError: /{FOLDER}", worker=HOST),
    }
    state = msgspec.structs.replace(state, trial=Trial(0, (), told))
    assert HOST.encode() in algorithm.encode(state)
    plain = algorithm.encode(handover.state(state, ()))
    assert HOST.encode() not in plain
    assert FOLDER.encode() not in plain
    assert b"OSError" in plain
    assert algorithm.encode(handover.state(state, handover.KINDS)) == algorithm.encode(state)


def test_the_kind_of_an_error_survives_any_number_of_hands():
    for said in ("ValueError: no", "ValueError"):
        assert handover.failure(said, ()) == "ValueError"
    assert handover.failure("node17: connection reset", ()) == "failed"


def test_what_cannot_be_asked_for_is_refused_before_anything_is_written(tmp_path, germline):
    run(tmp_path / "run", small())
    for words in (
        ["prune", "--trust"],
        ["export", "metrics"],
        ["export", "evaluations"],
        ["export", "html"],
    ):
        given = *words, tmp_path / "run", "--out", tmp_path / "x.csv", "--include", "costs,people"
        expected = "--include: 'people' is not one of hosts, paths, errors, costs"
        assert refused(germline(*given)) == expected
        assert not (tmp_path / "x.csv").exists()
