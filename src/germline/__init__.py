"""Germline evolves deep neural networks whose every individual is a few kilobytes of seeds.

The modules in reading order, each importing only from those above it:

    errors            the one error for what a user gave
    settings          what users write, turned into structs
    address           where a server is, and the secrets it is reached with
    xla               its programs, kept between processes, and its threads
    device            the cores and the accelerator that are here, and drawing without a screen
    child             programs that this one starts, and that end with it
    bfloat16          scales that keep the arithmetic exact
    noise             integer noise addressed by (seed, stream, index)
    layout            how a flat vector of weights is cut into a network's tensors
    operators         the mutation operators by name
    genome            Gene, Birth, Snapshot, Foreign, Genome and their ids
    disk              files read within bounds, written whole or not at all
    blobs             weights, contexts and kept states as bytes named by their hash
    files             genomes as JSON and safetensors
    mutation          what each operator does to the weights
    legacy            weights of genomes that other systems published
    decode_reference  decoding in plain numpy, the definition
    decode            decoding at a cost that does not grow with age
    policies          networks that play, in floats and in integers
    draws             everything a run draws at random, by counter
    messages          requests, evaluations, failures
    batches           requests as they travel
    tasks             what a policy is scored on
    proof             what exact arithmetic gives on every machine
    evaluate          decode, build, play: the work of one worker
    backends          who does the work, and the dispatcher above them
    algorithms        how a population moves: ask and tell
    run               the spec, the loop and the store
    paper             published results to compare with
    presets           specs that come with Germline
    api               train, look back, score: Germline from Python
    sweep             many runs that differ in a few settings, side by side
    deploy            files that bring a run to clusters
    dashboard         runs in a browser
    cli               the command `germline`
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from germline.api import Run as Run
    from germline.api import train as train
    from germline.decode import Decoder as Decoder
    from germline.errors import InputError as InputError
    from germline.files import GenomeFile as GenomeFile
    from germline.genome import Birth as Birth
    from germline.genome import Foreign as Foreign
    from germline.genome import Gene as Gene
    from germline.genome import Genome as Genome
    from germline.genome import Snapshot as Snapshot
    from germline.layout import Layout as Layout
    from germline.layout import Tensor as Tensor
    from germline.run.score import score as score

__version__ = "1.0.0"

# Imported on first use: `germline --help` must not wait for JAX.
_HOMES = {
    "Birth": "genome",
    "Decoder": "decode",
    "Foreign": "genome",
    "Gene": "genome",
    "Genome": "genome",
    "GenomeFile": "files",
    "InputError": "errors",
    "Layout": "layout",
    "Run": "api",
    "Snapshot": "genome",
    "Tensor": "layout",
    "score": "run.score",
    "train": "api",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"germline.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'germline' has no attribute {name!r}")
