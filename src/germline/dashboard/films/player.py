"""The program of a player: it decodes individuals and films their play, one request at a time.

It has what the dashboard itself is spared: JAX, the environments, and whatever an uploaded genome
may do to them. It works in a folder of its own that the dashboard made and removes.
"""

import contextlib
import os
import resource
import sys
import tempfile
import time
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from germline import child
from germline import device as devices
from germline.dashboard.films import messages
from germline.dashboard.films.messages import (
    Digest,
    Export,
    Film,
    Genome,
    Part,
    Ready,
    Refusal,
    Stop,
)
from germline.dashboard.films.messages import Weights as WeightsOf
from germline.errors import InputError, printable, shorten

if TYPE_CHECKING:
    from germline.dashboard.films.pictures import Pictures
    from germline.evaluate import Evaluator
    from germline.files import GenomeFile
    from germline.tasks.film import Shot

NICENESS = 5  # a run on the same machine is worth more than a film of it
MEMORY = 2**32
MOST_WEIGHTS = 2**25  # of a genome that somebody sent
MOST_BYTES = 2**26  # of the pictures of a film


def main(descriptor: int, parent: int) -> None:
    """Serve requests until the dashboard hangs up, or is gone."""
    child.begin(parent)
    os.nice(NICENESS)
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    bound = MEMORY if most == resource.RLIM_INFINITY else min(MEMORY, most)
    resource.setrlimit(resource.RLIMIT_DATA, (bound, most))
    os.chdir(tempfile.gettempdir())  # names of files that a genome smuggles in lead nowhere
    devices.offscreen()
    warnings.simplefilter("ignore")
    with Connection(descriptor) as server, contextlib.suppress(EOFError, OSError):
        _serve(server)


def _serve(server: Connection) -> None:
    pictures = _warm()
    server.send_bytes(messages.encode(Ready()))
    # What libraries print may hold what an uploaded file says, down to codes that steer terminals.
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    while True:
        request = messages.decode_request(server.recv_bytes())
        if isinstance(request, Film):
            _Play(request, server, pictures).film()
        elif not isinstance(request, Stop):
            server.send_bytes(messages.encode(_answer(request)))


def _warm() -> "Pictures":
    """Import all that films need, so that the first one begins at once."""
    import jax
    from PIL import JpegImagePlugin, PngImagePlugin  # noqa: F401

    import germline.run.loop
    import germline.run.score  # noqa: F401
    from germline import policies
    from germline.dashboard.films.pictures import Pictures

    with contextlib.suppress(ImportError):
        import pygame  # noqa: F401
    jax.devices()
    policies.names()
    return Pictures()


def _answer(request: WeightsOf | Genome) -> Digest | Export | Refusal:
    try:
        return _weights(request) if isinstance(request, WeightsOf) else _genome(request)
    except Exception as error:
        return Refusal(_told(error, request.folder, "the run"))


def _weights(request: WeightsOf) -> Digest:
    from germline import blobs, policies
    from germline.decode import Decoder

    started = time.perf_counter()
    file = _recalled(request.folder, request.id)
    layout = policies.layout_of(file.genome.policy)
    theta = Decoder(layout, file.snapshots()).decode(file.genome)
    digest = blobs.weights_hash(theta)
    return Digest(digest, layout.size, time.perf_counter() - started)


def _genome(request: Genome) -> Export:
    from germline import files

    file = _recalled(request.folder, request.id)
    ending = files.ending(file)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"genome{ending}"
        files.write(path, file)
        return Export(path.read_bytes(), ending)


def _recalled(folder: str, name: str) -> "GenomeFile":
    from germline.run.recall import recall

    return recall(Path(folder), name, trust=False)


class _CutError(Exception):
    """The film ends here, though the episode does not."""


class _Play:
    """One film: played, and sent record by record."""

    def __init__(self, request: Film, server: Connection, pictures: "Pictures") -> None:
        self.request = request
        self.server = server
        self.pictures = pictures
        self.shots = self.bytes = 0
        self.last: tuple[float, int] = 0.0, 0
        self.lasting = True

    def film(self) -> None:
        """Play an episode; whatever happens, there is a last record."""
        hidden, shown = self.request.folder, "the run"
        try:
            with tempfile.TemporaryDirectory() as folder:
                if self.request.file is not None:
                    hidden, shown = str(Path(folder) / "genome"), "the file"
                file = self._file(hidden)
            final = self._played(file)
        except _CutError as cut:
            score, steps = self.last
            final = _end(score, steps, str(cut))
        except (EOFError, ConnectionError):
            raise  # nobody is there any more
        except Exception as error:
            final = self._failed(_told(error, hidden, shown))
        self._send(final, last=True, lasting=self.lasting)

    def _file(self, path: str) -> "GenomeFile":
        from germline import files

        if self.request.file is None:
            return _recalled(self.request.folder, self.request.id)
        Path(path).write_bytes(self.request.file)
        file = files.read(Path(path))
        _check_sent(file)
        return file

    def _played(self, file: "GenomeFile") -> bytes:
        from germline.run import score

        score.check(file)
        begun = self._about(file)
        scores = score.watch(
            file, self._show, drawn=True, seed=self.request.seed, trust=False, begun=begun
        )
        return _end(scores.returns[0], scores.steps[0], None)

    def _about(self, file: "GenomeFile") -> Any:  # noqa: ANN401 - a callback
        from germline import blobs
        from germline.run import outline

        genome, task = file.genome, file.task
        assert task is not None
        facts = {
            "kind": "about",
            "id": genome.id,
            "policy": genome.policy.name,
            "task": outline.subject({"name": task.name, **task.settings}),
            "genes": len(genome.genes),
            "arithmetic": file.arithmetic,
            "seed": self.request.seed,
        }

        def begun(evaluator: "Evaluator") -> None:
            # The evaluator's own decoder, which then has the parent at hand.
            digest = blobs.weights_hash(evaluator.decoder.decode(genome))
            count = evaluator.decoder.layout.size
            self._send(messages.record(facts | {"digest": digest, "weights": count}))

        return begun

    def _show(self, shot: "Shot") -> None:
        if self.server.poll(0):
            stop = messages.decode_request(self.server.recv_bytes())
            self.lasting = False
            raise _CutError(stop.why if isinstance(stop, Stop) else "something else was asked for")
        if self.shots >= self.request.pictures:
            raise _CutError(
                f"the film ends after {self.request.pictures:,} pictures, as it was told to"
            )
        picture = self.pictures.encode(shot.picture)
        self.shots, self.bytes = self.shots + 1, self.bytes + len(picture)
        if self.bytes > MOST_BYTES:
            raise _CutError(f"the film ends after {MOST_BYTES // 2**20} MiB of pictures")
        self.last = float(shot.score), int(shot.step)
        header = {
            "kind": "shot",
            "step": self.last[1],
            "score": self.last[0],
            "end": shot.end,
            "pace": shot.pace,
        }
        self._send(messages.record(header, picture))

    def _failed(self, detail: str) -> bytes:
        self.lasting = False
        return messages.error(detail)

    def _send(self, data: bytes, *, last: bool = False, lasting: bool = False) -> None:
        self.server.send_bytes(messages.encode(Part(data, last, lasting)))


def _end(score: float, steps: int, cut: str | None) -> bytes:
    return messages.record({"kind": "end", "score": score, "steps": steps, "cut": cut})


def _check_sent(file: "GenomeFile") -> None:
    """Refuse what would cost more than a stranger's file may."""
    from germline import policies
    from germline.genome import Foreign
    from germline.legacy import uber

    size = policies.layout_of(file.genome.policy).size
    if size > MOST_WEIGHTS:
        raise InputError(f"the file: {size:,} weights; a film has {MOST_WEIGHTS:,} at most")
    root = file.genome.root
    if (
        isinstance(root, Foreign)
        and root.format == "uber"
        and not any(uber.folder().glob("noise-*.f32"))
    ):
        raise InputError(
            "the file: its root needs a table of noise of 1 GB, which is not here; "
            "germline genome hash FILE makes it"
        )


def _told(error: Exception, hidden: str, shown: str) -> str:
    """One sentence about an error, without the folder or file that is nobody's business."""
    text = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
    home = os.environ.get("HOME", "")
    for path, name in ((hidden, shown), (sys.prefix, "..."), (home, "~")):
        text = text.replace(path, name) if len(path) > 1 else text
    return shorten(printable(text))
