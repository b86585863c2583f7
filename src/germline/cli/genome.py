"""`germline genome`: make, mutate, look at and decode genome files."""

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from germline.cli import options
from germline.cli.options import AsJson, Force, individual
from germline.cli.output import say, say_json
from germline.cli.output.numbers import counted

if TYPE_CHECKING:
    from germline.files import GenomeFile
    from germline.genome import Foreign
    from germline.layout import Layout

app = typer.Typer(no_args_is_help=True, help="Make, mutate, look at and decode genome files.")

File = Annotated[Path, typer.Argument(help="A genome file, or - for standard input.")]
Out = Annotated[Path | None, typer.Option(help="Write here; without it, print the JSON form.")]
Seed = Annotated[int | None, typer.Option(help="0 to 2^32 - 1; drawn at random if not given.")]


@app.command()
def new(
    policy: Annotated[str, typer.Argument(help="A registered policy, such as mlp or dqn.")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting as key=value; may be repeated.")
    ] = None,
    seed: Seed = None,
    exact: Annotated[
        int | None,
        typer.Option(
            metavar="GENES", min=0, help="Play in integers, fitted to lineages of this many genes."
        ),
    ] = None,
    sigma: Annotated[
        float | None, typer.Option(help="The size of mutations --exact is fitted to, 0.002.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Start from the tensors of a safetensors file instead.")
    ] = None,
    out: Out = None,
    force: Force = False,
) -> None:
    """Give birth to a genome."""
    from germline import blobs, disk, policies
    from germline.errors import InputError
    from germline.files import Arithmetic, GenomeFile
    from germline.genome import Birth, Genome, Snapshot

    spec = policies.make(policy, options.pairs(set_ or []))
    if exact is not None:
        if getattr(spec, "steps", None) or getattr(spec, "shifts", None):
            raise InputError("--exact: chooses steps and shifts itself; leave those settings out")
        spec = policies.exact(spec, sigma=0.002 if sigma is None else sigma, genes=exact)
    elif sigma is not None:
        raise InputError("--sigma: has no meaning without --exact")
    arithmetic: Arithmetic = "exact" if getattr(spec, "steps", None) else "float32"
    reference = policies.reference(policy, spec)
    if weights is None:
        root = Birth(_seed(seed))
        _write(GenomeFile(Genome(reference, root), arithmetic=arithmetic), out, force)
        return
    if seed is not None:
        raise InputError("--seed: has no meaning beside --weights; give one of the two")
    try:
        blob = blobs.pack(spec.layout().flatten(disk.read_safetensors(weights)[0]))
    except InputError as error:
        raise InputError(individual.about(weights, error)) from None
    genome = Genome(reference, Snapshot(blobs.sha256(blob)))
    _write(GenomeFile(genome, arithmetic=arithmetic, weights=blob), out, force)


@app.command()
def mutate(
    file: File,
    sigma: Annotated[float, typer.Option(help="The size of the mutation.")] = 0.002,
    operator: Annotated[
        str,
        typer.Option(
            help="Such as gaussian, block:layer, renew:head, grow, sparse:P, lowrank:R.",
        ),
    ] = "gaussian",
    seed: Seed = None,
    out: Out = None,
    force: Force = False,
) -> None:
    """Add one gene."""
    from dataclasses import replace

    from germline import operators
    from germline.genome import Gene

    parent, layout = individual.read(file)
    gene = Gene(_seed(seed), sigma, operator)
    operators.check(operators.parse(operator), layout)
    _write(replace(parent, genome=parent.genome.child(gene)), out, force)


@app.command()
def show(file: File, json: AsJson = False) -> None:
    """Say what a genome is."""
    import msgspec

    from germline.genome import Foreign

    source, layout = individual.read(file)
    genome = source.genome
    facts: dict[str, Any] = {
        "id": genome.id,
        "parent": genome.parent_digest and genome.parent_digest[:16],
        "policy": genome.policy.name,
        "settings": genome.policy.settings,
        "weights": layout.size,
        "layout": layout.digest[:16],
        "root": msgspec.to_builtins(genome.root),
        "genes": len(genome.genes),
        "last_gene": msgspec.to_builtins(genome.genes[-1]) if genome.genes else None,
        "task": msgspec.to_builtins(source.task),
        "arithmetic": source.arithmetic,
        "siblings": source.siblings or None,
    }
    if json:
        say_json(facts)
        return
    if isinstance(genome.root, Foreign):
        facts["root"] = _foreign(genome.root)
    for key, value in facts.items():
        if value is None:
            continue
        if isinstance(value, dict):
            value = "  ".join(f"{k}={v}" for k, v in value.items())
        shown = f"{value:,}" if isinstance(value, int) else value
        say(f"{key.replace('_', ' '):<12}{shown}")


def _foreign(root: "Foreign") -> dict[str, str]:
    """A root of another system without its payload, which may be long."""
    count = len(root.payload) if isinstance(root.payload, tuple) else 1 + len(root.payload.genes)
    return {"kind": "foreign", "format": root.format, "payload": f"{count:,} numbers"}


@app.command("hash")
def hash_(
    file: File,
    engine: Annotated[
        Literal["jax", "numpy"], typer.Option(help="jax is fast, numpy is the definition.")
    ] = "jax",
) -> None:
    """Print the SHA-256 of the decoded float32 weights: the same on every machine."""
    from germline import blobs

    source, layout = individual.read(file)
    typer.echo(blobs.weights_hash(_decoded(source, layout, engine)))


@app.command()
def decode(
    file: File,
    out: Annotated[Path, typer.Option(help="Write the weights here, as safetensors.")],
    force: Force = False,
) -> None:
    """Write the decoded weights as named tensors."""
    from germline import disk

    disk.check_writable(out, replace=force)
    write_weights(*individual.read(file), out, force=force)


def write_weights(source: "GenomeFile", layout: "Layout", out: Path, *, force: bool) -> None:
    """Decode a genome and write its tensors by their names."""
    import msgspec
    import numpy as np
    from safetensors.numpy import save as to_safetensors

    from germline import blobs, disk

    theta = np.asarray(_decoded(source, layout, "jax"))
    digest = blobs.weights_hash(theta)
    # One entry: several would be written in an order of chance.
    about = msgspec.json.encode({"genome": source.genome.id, "sha256": digest}).decode()
    disk.save(out, to_safetensors(layout.unflatten(theta), {"weights": about}), replace=force)
    say(f"{out}: {layout.size:,} weights, SHA-256 {digest}")


def _decoded(source: "GenomeFile", layout: "Layout", engine: str) -> Any:  # noqa: ANN401
    if engine == "numpy":
        from germline import decode_reference

        return decode_reference.decode(source.genome, layout, source.snapshots())
    from germline import xla

    xla.keep_compiled()
    from germline.decode import Decoder

    return Decoder(layout, source.snapshots()).decode(source.genome)


def _write(file: "GenomeFile", out: Path | None, force: bool) -> None:
    from germline import files
    from germline.errors import InputError
    from germline.genome import Snapshot

    if out is not None:
        files.write(out, file, replace=force)
        say(f"{out}: {file.genome.id}, {counted(len(file.genome.genes), 'gene')}")
    elif isinstance(file.genome.root, Snapshot):
        raise InputError("--out: is needed, a genome that starts from weights is not plain text")
    else:
        typer.echo(files.to_json(file), nl=False)


def _seed(given: int | None) -> int:
    return secrets.randbits(32) if given is None else given
