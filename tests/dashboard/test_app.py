"""The dashboard's calls: who is answered, with what, and how mistakes are told."""

import json

import pytest
from starlette.testclient import TestClient

from germline import files
from germline.dashboard import app, guard
from germline.dashboard.library import Busy
from germline.errors import InputError
from germline.run import recall
from germline.run.store import Store
from runs import CARTPOLE, run, small

TOKEN = "open sesame"


class Closed:
    """Players of which none is free: calls that need one are told so."""

    def film(self, *_):
        raise Busy("films are being made", 7.5)

    def film_of_file(self, *_):
        raise InputError("the file: genes: is missing")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "runs"
    run(folder / "plain", small(CARTPOLE | {"stop.generations": 2}))
    run(folder / "<img src=x onerror=alert(1)>", small())
    return folder


def client(folder, players=None, **options):
    host = options.pop("base_url", "http://localhost")
    made = app.create(folder, players or Closed(), **options)
    return TestClient(made, base_url=host, raise_server_exceptions=False)


@pytest.fixture(scope="module")
def browser(made):
    return client(made)


@pytest.fixture(scope="module")
def stranger(made):
    """Who does not know the token."""
    return client(made, token=TOKEN)


def keys(browser):
    """The keys of runs by name."""
    return {row["name"]: row["key"] for row in browser.get("/api/runs").json()["runs"]}


def test_the_page_and_its_parts_are_served_with_a_tight_policy(browser):
    for path, kind in {
        "/": "text/html",
        "/page/main.js": "text/javascript",
        "/page/style.css": "text/css",
        "/page/plotly.js": "text/javascript",
    }.items():
        answer = browser.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(kind)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert "http" not in browser.get("/").text.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize(
    "name", ["none.js", "../app.py", "..%2fapp.py", "%2e%2e/app.py", "__init__.py", "", "%00"]
)
def test_nothing_but_the_page_is_served(browser, name):
    answer = browser.get(f"/page/{name}")
    assert answer.status_code == 404
    assert "germline" not in answer.text.lower()


def test_names_are_data(browser):
    answer = browser.get("/api/runs")
    assert answer.headers["content-type"] == "application/json"
    assert "<img src=x onerror=alert(1)>" in {row["name"] for row in answer.json()["runs"]}


def test_every_call_answers(browser, made):
    key = keys(browser)["plain"]
    with Store.open(made / "plain") as store:
        champion = store.reports()[-1].champion
    for path in (
        *("", "/curves", "/bands", "/workers", "/population/1?x=number&y=fitness"),
        *(f"/lineage/{champion}", f"/individuals/{champion[:8]}"),
    ):
        answer = browser.get(f"/api/runs/{key}{path}")
        assert answer.status_code == 200, path
        assert answer.json()
    gallery = browser.get("/api/gallery", params={"task": "CartPole-v1"}).json()
    assert gallery["tasks"] == ["CartPole-v1", "positive"]
    assert gallery["cards"][0]["id"] == champion or len(gallery["cards"]) > 1
    assert {card["task"] for card in gallery["cards"]} == {"CartPole-v1"}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/runs/0000000000000000", 404),
        ("/api/runs/..", 404),
        ("/api/runs/%2e%2e%2f%2e%2e%2fetc%2fpasswd", 404),
        ("/api/runs/short", 422),
        ("/api/runs/{key}/population/2", 404),
        ("/api/runs/{key}/population/-1", 422),
        ("/api/runs/{key}/population/0?x=height", 422),
        ("/api/runs/{key}/lineage/ffff", 404),
        ("/api/runs/{key}/curves?points=1", 422),
        ("/api/nothing", 404),
    ],
)
def test_mistakes_are_told_in_a_sentence(browser, made, path, status):
    answer = browser.get(path.format(key=keys(browser)["plain"]))
    assert answer.status_code == status
    assert isinstance(answer.json()["detail"], str)
    assert str(made) not in answer.text


def test_paths_of_the_machine_are_not_told(made, tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.db").write_bytes(b"nothing" * 999)
    browser = client(tmp_path)
    (row,) = browser.get("/api/runs").json()["runs"]
    assert row["error"].startswith("bad/run.db: cannot be read")
    answer = browser.get(f"/api/runs/{row['key']}")
    assert answer.status_code == 422
    assert str(tmp_path) not in answer.text


def test_runs_that_are_code_are_not_played(browser, made):
    key = keys(browser)["<img src=x onerror=alert(1)>"]
    with Store.open(made / "<img src=x onerror=alert(1)>") as store:
        champion = store.reports()[-1].champion
    for part in ("film", "weights", "genome"):
        answer = browser.get(f"/api/runs/{key}/individuals/{champion}/{part}")
        assert answer.status_code == 422
        assert "imports games, which is running code" in answer.json()["detail"]


def test_who_asks_for_too_much_is_told_to_wait(browser, made):
    key = keys(browser)["plain"]
    with Store.open(made / "plain") as store:
        champion = store.reports()[-1].champion
    answer = browser.get(f"/api/runs/{key}/individuals/{champion}/film")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "8")
    assert browser.post("/api/film", content=b"{}").json() == {
        "detail": "the file: genes: is missing"
    }


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/film", b"x" * (app.MAX_UPLOAD + 1)),
        ("/api/film", iter([b"of a length that nobody knows"])),
        ("/api/login", b"x" * (app.MAX_BODY + 1)),
        ("/api/login", iter([b'{"token": ""}'])),
    ],
)
def test_what_is_too_large_is_refused_before_it_is_read(stranger, path, body):
    answer = stranger.post(path, content=body)
    assert answer.status_code == 413
    assert "The request is too large, or of unknown length" in answer.json()["detail"]


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "[", "192.0.2.7"])
def test_other_hosts_are_refused(browser, host):
    answer = browser.get("/api/runs", headers={"Host": host})
    assert answer.status_code == 403
    assert "Host" in answer.json()["detail"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9", "127.0.0.1:8420", "[::1]:8420"])
def test_this_machine_is_known_by_its_names(browser, host):
    assert browser.get("/api/runs", headers={"Host": host}).status_code == 200


def test_served_to_others_numbers_and_given_names_are_known(made):
    browser = client(made, local=False, hosts=["Lab.example"])
    for host, status in {"192.0.2.7": 200, "lab.example:1": 200, "evil.example": 403}.items():
        assert browser.get("/api/runs", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://localhost"},
        {"Origin": "http://localhost:8421"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_pages_of_others_are_refused(browser, headers):
    assert browser.get("/api/runs", headers=headers).status_code == 403
    assert browser.post("/api/film", content=b"{}", headers=headers).status_code == 403


def test_the_page_itself_may_ask(browser):
    headers = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    assert browser.get("/api/runs", headers=headers).status_code == 200
    assert browser.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200  # a link


def test_without_the_token_there_is_the_page_and_nothing_else(made):
    browser = client(made, token=TOKEN)
    assert browser.get("/").status_code == 200
    assert browser.get("/page/main.js").status_code == 200
    for path in ("/api/runs", "/openapi.json", "/api/gallery", "/api", "/api/login/../runs"):
        assert browser.get(path).status_code == 401
        bearer = {"Authorization": f"Bearer {TOKEN}x"}
        assert browser.get(path, headers=bearer).status_code == 401
    assert browser.post("/api/film", content=b"{}").status_code == 401
    assert browser.get("/api/runs", headers={"Cookie": "germline=open"}).status_code == 401
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert browser.get("/api/runs", headers=bearer).status_code == 200


def test_a_browser_logs_in_by_a_cookie_that_no_script_sees(made):
    browser = client(made, token=TOKEN, secure=True, base_url="https://localhost")
    assert browser.post("/api/login", json={"token": "no"}).status_code == 401
    answer = browser.post("/api/login", json={"token": TOKEN})
    cookie = answer.headers["set-cookie"]
    assert answer.status_code == 204
    assert {"HttpOnly", "Secure", "SameSite=strict"} <= set(cookie.split("; "))
    assert TOKEN not in cookie
    assert browser.get("/api/runs").status_code == 200
    # Of another server of the same token it is no use.
    # Those of others on this machine do not hide it.
    crowd = {"Cookie": 'prefs={"a":1}; flag; [k]=1; germline-1=x; ' + cookie.split(";")[0]}
    browser.cookies.clear()
    assert browser.get("/api/runs").status_code == 401
    assert browser.get("/api/runs", headers=crowd).status_code == 200
    stolen = {"Cookie": cookie.split(";")[0]}
    other = client(made, token=TOKEN, secure=True, base_url="https://localhost")
    assert other.get("/api/runs", headers=stolen).status_code == 401


def test_guesses_are_limited(made, monkeypatch):
    browser = client(made, token=TOKEN)
    for _ in range(guard.TRIES):
        assert browser.post("/api/login", json={"token": "guess"}).status_code == 401
    assert browser.post("/api/login", json={"token": TOKEN}).status_code == 429
    assert browser.get("/api/runs", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 429
    # Who guesses elsewhere does not lock this one out.
    made_app = app.create(made, Closed(), token=TOKEN)
    for address, status in (("192.0.2.1", 429), ("192.0.2.2", 204)):
        other = TestClient(made_app, base_url="http://localhost", client=(address, 1))
        for _ in range(guard.TRIES if status == 429 else 0):
            other.post("/api/login", json={"token": "guess"})
        assert other.post("/api/login", json={"token": TOKEN}).status_code == status
    monkeypatch.setattr(guard, "WINDOW", 0.0)
    assert browser.post("/api/login", json={"token": TOKEN}).status_code == 204


def test_the_schema_describes_every_call(browser):
    schema = browser.get("/openapi.json").json()
    assert "/api/runs/{run}/individuals/{individual}/film" in schema["paths"]
    for path, methods in schema["paths"].items():
        for about in methods.values():
            assert about["description"], path
            assert {"422", "404", "429"} <= set(about["responses"])
    assert json.dumps(schema).count("#/components/schemas/Problem") > 10


@pytest.fixture(scope="module")
def player():
    from germline.dashboard.films.pool import Players

    with Players(1) as players:
        yield players


def test_a_genome_comes_out_as_it_was_exported_and_can_be_sent_in_again(made, player, tmp_path):
    browser = client(made, player)
    key = keys(browser)["plain"]
    with Store.open(made / "plain") as store:
        champion = store.reports()[-1].champion
    answer = browser.get(f"/api/runs/{key}/individuals/{champion}/genome")
    assert answer.headers["content-disposition"] == f'attachment; filename="{champion}.json"'
    files.write(tmp_path / "own.json", recall.recall(made / "plain", champion))
    assert answer.content == (tmp_path / "own.json").read_bytes()
    sent = browser.post("/api/film?seed=3", content=answer.content)
    kept = browser.get(f"/api/runs/{key}/individuals/{champion}/film?seed=3")
    assert sent.headers["content-type"] == kept.headers["content-type"] == app.FILM
    assert sent.content == kept.content
    digest = browser.get(f"/api/runs/{key}/individuals/{champion}/weights").json()["digest"]
    assert digest in sent.content[:1000].decode("latin-1")
