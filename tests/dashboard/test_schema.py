"""Two thousand made-up calls after the schema: no call breaks the server, or leaves the folder."""

import shutil
import sys
from collections import Counter

import hypothesis
import pytest
import schemathesis
from hypothesis.strategies import integers
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from germline.dashboard import app
from germline.dashboard.films.pool import Players
from germline.run.store import Store
from runs import CARTPOLE, run, small

CASES = 2000
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
SECRET = "nobody-may-read-this"


class Opened:
    """The files that this process opens; Python lets nobody take such a hook back."""

    def __init__(self):
        self.paths = []
        self.wanted = False
        sys.addaudithook(self._note)

    def _note(self, event, given):
        if self.wanted and event in ("open", "sqlite3.connect", "os.scandir", "os.listdir"):
            self.paths.append(str(given[0]).removeprefix("file://").partition("?")[0])


@pytest.fixture(scope="module")
def opened():
    return Opened()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of runs, and beside it what nobody may see."""
    place = tmp_path_factory.mktemp("made")
    run(place / "runs" / "plain", small(CARTPOLE | {"stop.generations": 2}))
    run(place / "runs" / "es", small(CARTPOLE | {"stop.generations": 2}, "es"))
    shutil.copytree(place / "runs" / "plain", place / SECRET)
    (place / "secret.txt").write_text(SECRET)
    (place / "runs" / "link").symlink_to(place / SECRET)
    return place


@pytest.fixture(scope="module")
def schema(made):
    with Players(1, per_minute=60) as players:
        made_app = app.create(made / "runs", players, hosts=["testserver"])
        yield schemathesis.openapi.from_asgi("/openapi.json", made_app)


@pytest.fixture(scope="module")
def there(made):
    """Keys and ids that are there; made-up ones are nobody's."""
    from germline.dashboard.library import Library

    found = []
    library = Library(made / "runs")
    for key in library.runs():
        with Store.open(library.path(key)) as store:
            found.append((key, store.reports()[-1].champion))
    return found


@pytest.mark.slow
def test_made_up_calls_break_nothing_and_stay_in_the_folder(schema, there, made, opened):
    operations = [found.ok() for found in schema.get_all_operations()]
    share = 1 + CASES // (2 * len(operations) - 3)  # few cases are possible without parameters
    seen = Counter()

    def made_up(operation, mode):
        @hypothesis.settings(
            max_examples=share, suppress_health_check=list(hypothesis.HealthCheck), database=None
        )
        @hypothesis.given(operation.as_strategy(generation_mode=mode), integers(0, 5))
        def call(case, real):
            key, champion = there[real % len(there)]
            known = {"run": key, "individual": champion, "generation": real % 2}
            if real:
                case.path_parameters |= {n: known[n] for n in case.path_parameters if n in known}
            if real > 3 and "x" in (case.query or {}):
                case.query |= {"x": "number", "y": "episodes"}
            if operation.path.endswith("film") and mode == GenerationMode.POSITIVE:
                case.query = {**(case.query or {}), "pictures": 1}
            opened.wanted = True
            answer = case.call()
            opened.wanted = False
            seen[answer.status_code] += 1
            case.validate_response(answer, checks=CHECKS)
            assert SECRET.encode() not in answer.content

        call()

    for operation in operations:
        for mode in GenerationMode:
            if mode == GenerationMode.POSITIVE or operation.path_parameters or operation.query:
                made_up(operation, mode)
    assert seen.total() >= CASES
    assert {200, 204, 404, 422} <= set(seen)
    inside = [path for path in opened.paths if path.startswith(str(made))]
    assert {path for path in inside if not path.startswith(f"{made}/runs/")} <= {f"{made}/runs"}
    assert any(path.startswith(f"{made}/runs/plain/") for path in inside)
