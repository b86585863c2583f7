"""The dashboard as an application: the page, and the calls by which it learns of runs.

Calls read stores and nothing else; what needs JAX is done by players, programs of their own.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

import germline
from germline.dashboard.answers import about_individual, about_run, schema
from germline.dashboard.answers.about_all_runs import Table, gallery
from germline.dashboard.assets import page
from germline.dashboard.films.messages import PICTURES
from germline.dashboard.films.pool import Players
from germline.dashboard.films.reel import Reader
from germline.dashboard.guard import Guard, Keeper
from germline.dashboard.library import Busy, Library, MissingError, readable
from germline.errors import InputError
from germline.run import spec as specs

FILM = "application/x-germline-film"
MAX_UPLOAD = 2**25
MAX_BODY = 2**14  # of calls that take no file
UPLOADS = 2  # files that are received at once
RECEIVING = 60.0  # seconds that a file may take to arrive

Key = Annotated[str, InPath(pattern="^[0-9a-f]{16}$", description="The key of a run.")]
Id = Annotated[
    str, InPath(pattern="^[0-9a-f]{4,16}$", description="An individual's id, or its start.")
]
Generation = Annotated[int, InPath(ge=0, lt=2**31)]
Seed = Annotated[int, Query(ge=0, lt=2**32, description="Which fresh episode.")]
Name = Annotated[str, Query(max_length=40, description="A recorded number.")]


class Login(BaseModel):
    """The token that the server was started with."""

    token: str = Field(max_length=4096)


def create(
    folder: Path,
    players: Players,
    *,
    token: str | None = None,
    hosts: Sequence[str] = (),
    port: int = 0,
    local: bool = True,
    secure: bool = False,
) -> ASGIApp:
    """The guarded application over the runs of a folder.

    `local` is whether nobody else can reach it, `secure` whether it is served by TLS, `hosts` are
    further names that it is asked for by, and `port` tells its cookie from those of others.
    """
    library = Library(folder)
    app = FastAPI(
        title="Germline",
        version=germline.__version__,
        docs_url=None,  # which would be fetched from elsewhere
        redoc_url=None,
        responses={
            code: {"model": schema.Problem} for code in (401, 403, 404, 408, 413, 422, 429, 503)
        },
    )
    keeper = Keeper(token, port)
    _add_errors(app, library)
    _add_page(app)
    _add_runs(app, library)
    _add_films(app, library, players)
    _add_login(app, keeper, secure=secure)
    return Guard(app, keeper, hosts, local=local, sizes={"/api/film": MAX_UPLOAD, "": MAX_BODY})


def _add_login(app: FastAPI, keeper: Keeper, *, secure: bool) -> None:
    @app.post("/api/login", status_code=204)
    async def login(given: Login, request: Request) -> Response:
        """Exchange the token for a cookie."""
        answer = Response(status_code=204)
        if keeper.needed:
            refusal = keeper.refusal(given.token, request.client.host if request.client else "")
            if refusal is not None:
                raise HTTPException(*refusal)
            answer.set_cookie(
                keeper.name, keeper.cookie, httponly=True, samesite="strict", secure=secure
            )
        return answer


def _add_runs(app: FastAPI, library: Library) -> None:
    table = Table(library)

    @app.get("/api/runs", response_model=schema.Runs)
    def runs() -> Response:
        """All runs of the folder."""
        name = readable(library.folder.name)
        return _json(schema.Runs(name, germline.__version__, table.rows()))

    @app.get("/api/runs/{run}", response_model=schema.Run)
    def run(run: Key) -> Response:
        """A run, its spec and its sessions."""
        with library.open(run) as view:
            return _json(about_run.run(view))

    @app.get("/api/runs/{run}/curves", response_model=schema.Curves)
    def curves(run: Key, points: Annotated[int, Query(ge=2, le=10_000)] = 2_000) -> Response:
        """What every generation came to."""
        with library.open(run) as view:
            return _json(about_run.curves(view, points))

    @app.get("/api/runs/{run}/bands", response_model=schema.Bands)
    def bands(run: Key, points: Annotated[int, Query(ge=2, le=1_000)] = 200) -> Response:
        """Quantiles of the fitness; to be asked again until all is read."""
        with library.open(run) as view:
            return _json(about_run.bands(view, points))

    @app.get("/api/runs/{run}/workers", response_model=schema.Workers)
    def workers(run: Key) -> Response:
        """Who worked at the last finished generation."""
        with library.open(run) as view:
            return _json(about_run.workers(view))

    @app.get("/api/runs/{run}/population/{generation}", response_model=schema.Population)
    def population(
        run: Key, generation: Generation, x: Name = "steps", y: Name = "fitness"
    ) -> Response:
        """Two numbers of everybody in a finished generation."""
        with library.open(run) as view:
            return _json(about_run.population(view, generation, x, y))

    @app.get("/api/runs/{run}/lineage/{individual}", response_model=schema.Lineage)
    def lineage(run: Key, individual: Id) -> Response:
        """From the root to an individual; to be asked again until all is read."""
        with library.open(run) as view:
            return _json(about_individual.lineage(view, individual))

    @app.get("/api/runs/{run}/individuals/{individual}", response_model=schema.Individual)
    def individual(run: Key, individual: Id) -> Response:
        """An individual's genome and episodes; to be asked again until all is read."""
        with library.open(run) as view:
            return _json(about_individual.individual(view, individual))

    @app.get("/api/gallery", response_model=schema.Gallery)
    def best(
        task: Annotated[str, Query(max_length=200)] = "",
        count: Annotated[int, Query(ge=1, le=100)] = 24,
    ) -> Response:
        """The best genomes, by task and score."""
        return _json(gallery(library, task, count))


def _add_films(app: FastAPI, library: Library, players: Players) -> None:
    receiving = 0  # touched by the event loop alone
    streamed: dict[int | str, dict[str, Any]] = {
        200: {"content": {FILM: {"schema": {"type": "string", "format": "binary"}}}}
    }
    attached: dict[int | str, dict[str, Any]] = {
        200: {"content": {"application/octet-stream": streamed[200]["content"][FILM]}}
    }

    def playable(run: str, start: str) -> tuple[Path, str, str]:
        """The folder, the run's own id and the individual, if it can be played."""
        with library.open(run) as view:
            reason = about_run.unplayable(specs.of_run(view.store.folder))
            if reason is not None:
                raise InputError(reason)
            return view.store.folder, view.store.run, about_individual.find(view, start)

    @app.get(
        "/api/runs/{run}/individuals/{individual}/film",
        response_class=StreamingResponse,
        responses=streamed,
    )
    def film(
        run: Key,
        individual: Id,
        seed: Seed = 0,
        pictures: Annotated[int, Query(ge=1, le=PICTURES)] = PICTURES,
    ) -> Response:
        """The individual's play, streamed while it is made."""
        folder, within, name = playable(run, individual)
        return Streamed(players.film(folder, name, seed, pictures, within))

    @app.post(
        "/api/film",
        response_class=StreamingResponse,
        responses=streamed,
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/octet-stream": streamed[200]["content"][FILM]},
            }
        },
    )
    async def film_of_file(request: Request, seed: Seed = 0) -> Response:
        """The play of a genome file, which names registered tasks only."""
        nonlocal receiving
        if receiving >= UPLOADS:
            raise Busy(f"{receiving} files are on their way", 5)
        receiving += 1
        try:
            async with asyncio.timeout(RECEIVING):
                data = await request.body()
        except TimeoutError:
            raise HTTPException(408, f"The file was not here after {RECEIVING:.0f} s.") from None
        finally:
            receiving -= 1
        return Streamed(await run_in_threadpool(players.film_of_file, data, seed))

    @app.get("/api/runs/{run}/individuals/{individual}/weights", response_model=schema.Weights)
    def weights(run: Key, individual: Id) -> Response:
        """The digest of the decoded weights."""
        folder, _, name = playable(run, individual)
        return _json(schema.Weights(*players.weights(folder, name)))

    @app.get(
        "/api/runs/{run}/individuals/{individual}/genome",
        response_class=Response,
        responses=attached,
    )
    def genome(run: Key, individual: Id) -> Response:
        """The individual as a genome file."""
        folder, _, name = playable(run, individual)
        data, ending = players.genome(folder, name)
        about = {"Content-Disposition": f'attachment; filename="{name}{ending}"'}
        return Response(data, media_type="application/octet-stream", headers=about)


def _add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return _file("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        return _file(name)


def _add_errors(app: FastAPI, library: Library) -> None:
    def problem(status: int, error: object, headers: Any = None) -> Response:  # noqa: ANN401
        body = msgspec.json.encode(schema.Problem(library.within(error)))
        return Response(body, status, headers, media_type="application/json")

    @app.exception_handler(InputError)
    def refused(request: Request, error: InputError) -> Response:
        return problem(404 if isinstance(error, MissingError) else 422, error)

    @app.exception_handler(OSError)
    def unreadable(request: Request, error: OSError) -> Response:
        return problem(404, f"{error.filename or 'a file'}: {error.strerror or error}")

    @app.exception_handler(Busy)
    def busy(request: Request, error: Busy) -> Response:
        return problem(429, error, {"Retry-After": str(error.seconds)})

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return problem(422, f"{place}: {first['msg']}")


class Streamed(StreamingResponse):
    """A film on its way; when nobody listens any more, it ends."""

    def __init__(self, film: Reader) -> None:
        super().__init__(film, media_type=FILM)
        self._film = film

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._film.close()


def _json(answer: object) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json")


def _file(name: str) -> Response:
    """A file of the page."""
    found = page().get(name)
    if found is None:
        raise MissingError(f"{name[:40]}: the page has no such file")
    data, kind = found
    # It changes with the version of the program alone, but the browser is to ask.
    return Response(data, media_type=kind, headers={"Cache-Control": "no-cache"})
