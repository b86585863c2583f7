"""`germline digest`: one number for all that was evolved."""

import typer

from germline.cli.options import Run


def digest(run: Run) -> None:
    """Print the SHA-256 over all individuals and evaluations: equal for equal lineages."""
    from germline.run.store import Store

    with Store.open(run) as store:
        typer.echo(store.digest())
