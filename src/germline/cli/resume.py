"""`germline resume`: a run goes on where it was stopped."""

from germline.cli import options, train
from germline.cli.options import (
    Audit,
    Backend,
    Certificate,
    Device,
    Insecure,
    Json,
    Key,
    Plain,
    Quiet,
    Run,
    Set,
    TokenFile,
    Trust,
    Workers,
)
from germline.cli.output import progress
from germline.cli.output import tensorboard as board
from germline.cli.output.tensorboard import FilmEvery, TensorBoard


def resume(
    run: Run,
    set_: Set = None,
    backend: Backend = None,
    workers: Workers = None,
    device: Device = None,
    token_file: TokenFile = None,
    certificate: Certificate = None,
    key: Key = None,
    insecure: Insecure = False,
    audit: Audit = None,
    trust: Trust = False,
    tensorboard: TensorBoard = False,
    film_every: FilmEvery = 0,
    json: Json = False,
    plain: Plain = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a run; stop rules and the backend may be changed, nothing else."""
    progress.check(json=json, plain=plain, quiet=quiet)
    board.check(tensorboard, film_every)
    with options.signals() as caught:
        changes = options.changes(
            set_,
            backend=backend,
            workers=workers,
            device=device,
            token_file=token_file,
            certificate=certificate,
            key=key,
            insecure=insecure,
            audit=audit,
        )
        options.prepare(trust)
        from germline import api

        resolved = api.go_on(run, changes, trust=trust)
        boarded = train.board_of(run, resolved, tensorboard, film_every, trust, caught)
        shown = progress.choose(run, resolved.spec, json=json, plain=plain, quiet=quiet)
        ending = train.evolve(run, resolved, shown, trust, caught, boarded)
        train.end(ending, run, resolved, shown, trust, caught)
