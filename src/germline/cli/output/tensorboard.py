"""A run for TensorBoard: numbers and the histogram of every generation, films of its champions.

Event files are written with the `tensorboard` package alone. One record holds a whole generation,
so that after any kill a generation is there or it is not, and none is written twice.
"""

import math
import struct
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from germline import device as devices
from germline.cli.output import films
from germline.errors import InputError

if TYPE_CHECKING:
    from germline.algorithms.protocols import Report
    from germline.run.spec import Resolved
    from germline.run.stop import Totals
    from germline.run.store import Store

TensorBoard = Annotated[
    bool, typer.Option("--tensorboard", help="Keep curves for TensorBoard in RUN/tensorboard.")
]
FilmEvery = Annotated[
    int,
    typer.Option(
        min=0, help="With --tensorboard, film the champion of every so many generations; 0 is none."
    ),
]

START = "events.out.tfevents."
MARK = "total/generations"  # is in every record of a generation
FILM = "champion"


def check(asked: bool, every: int) -> None:
    """Refuse what cannot be done, before anything is started."""
    if every and not asked:
        raise InputError("--film-every: has no meaning without --tensorboard; give both")
    if not asked:
        return
    if find_spec("tensorboard") is None:
        raise InputError(
            "--tensorboard: tensorboard is not here, add it with: "
            "pip install 'germline[tensorboard]'"
        )
    if every:
        films.check("--film-every")
        devices.offscreen()


class Board:
    """Writes what becomes of a run; films of its champions every so many generations, if any."""

    def __init__(
        self,
        folder: Path,
        resolved: "Resolved",
        every: int,
        *,
        trust: bool,
        stopped: Callable[[], bool],
        warn: Callable[[str], None],
    ) -> None:
        about = resolved.problem.task
        if every and not films.filmable(about):
            raise InputError(f"--film-every: task {about.name}: there is nothing to look at")
        from germline.run.cost import Pace

        self.run = folder
        self.stop = resolved.spec.stop
        self.pace = Pace()
        self.folder = folder / "tensorboard"
        self.imports = resolved.spec.imports
        self.every = every
        self.broken = False
        self.trust = trust
        self.stopped = stopped
        self.warn = warn
        self.file: BinaryIO | None = None
        self.there: dict[str, set[int]] = {MARK: set(), FILM: set()}
        self.evaluations = 0

    def __enter__(self) -> "Board":
        return self

    def __exit__(self, *_: object) -> None:
        if self.file is not None:
            self.file.close()

    def begin(self, history: "list[tuple[Report, Totals]]") -> None:
        """See what is written already, and write what is missing of the generations before."""
        for path in sorted(self.folder.glob(f"{START}*")):
            for event in _events(path):
                for value in event.summary.value:
                    if value.tag in self.there:
                        self.there[value.tag].add(event.step)
        # Had it been written then, as if the run had never paused.
        began = time.time() - (history[-1][1].seconds if history else 0.0)
        for report, totals in history:
            self._numbers(report, totals, began + totals.seconds)

    def generation(self, report: "Report", totals: "Totals") -> None:
        """Write a generation that is in the store, and film its champion if it is its turn."""
        if self.broken:
            return
        try:
            self._generation(report, totals)
        except OSError as error:  # a run is worth more than its log
            self.warn(f"--tensorboard: no more is written: {error}")
            self.broken = True

    def _generation(self, report: "Report", totals: "Totals") -> None:
        self._numbers(report, totals, time.time())
        turn = self.every and report.generation % self.every == 0
        if not turn or report.generation in self.there[FILM]:
            return
        try:
            self._write(report.generation, time.time(), self._film(report.champion))
        except KeyboardInterrupt:
            if not self.stopped():
                raise
        except InputError as error:  # a run is worth more than its films
            self.warn(f"--film-every: no more films: {error}")
            self.every = 0

    def _numbers(self, report: "Report", totals: "Totals", when: float) -> None:
        import numpy as np
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.histogram.summary_v2 import histogram_pb
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb

        from germline.run.cost import per_billion
        from germline.run.store import Store

        self.evaluations += report.evaluations
        seconds = totals.seconds - self.pace.now.seconds
        self.pace.add(totals)
        if report.generation in self.there[MARK]:
            return
        to_go = self.pace.to_go(self.stop, report) if totals.cost else None
        values = _scalars(report, totals, seconds) | {
            "total/evaluations": self.evaluations,
            "cost/per_billion_frames": per_billion(totals),
            "cost/to_go": None if to_go is None else to_go.cost,
        }
        summary = Summary()
        for tag, value in values.items():
            if value is not None and math.isfinite(value):
                summary.value.extend(scalar_pb(tag, value).value)
        with Store.open(self.run) as store:
            fitness = _fitness(store, report.generation)
        if fitness:
            summary.value.extend(histogram_pb("fitness", np.array(fitness)).value)
        self._write(report.generation, when, summary)

    def _film(self, champion: str) -> Any:  # noqa: ANN401 - a summary
        """A champion's first fresh episode, as `germline play` shows it."""
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
        from tensorboard.compat.proto.types_pb2 import DT_STRING
        from tensorboard.plugins.image.metadata import create_summary_metadata

        from germline.run import recall, score

        film = films.Gif()
        file = recall.recall(self.run, champion, trust=self.trust)
        score.watch(
            file,
            film.show,
            drawn=True,
            imports=self.imports,
            trust=self.trust,
            stopped=self.stopped,
        )
        width, height = film.pictures[0].size
        parts = [str(width).encode(), str(height).encode(), film.data]
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=len(parts))])
        tensor = TensorProto(dtype=DT_STRING, tensor_shape=shape, string_val=parts)
        about = create_summary_metadata(display_name=None, description=None)
        return Summary(value=[Summary.Value(tag=FILM, tensor=tensor, metadata=about)])

    def _write(self, step: int, when: float, summary: Any) -> None:  # noqa: ANN401
        """Add a record; the file is begun with the first."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        if self.file is None:
            self.file = self._begun()
            RecordWriter(self.file).write(
                Event(wall_time=when, file_version="brain.Event:2").SerializeToString()
            )
        event = Event(wall_time=when, step=step, summary=summary)
        RecordWriter(self.file).write(event.SerializeToString())
        self.file.flush()
        for value in summary.value:
            self.there.setdefault(value.tag, set()).add(step)

    def _begun(self) -> BinaryIO:
        """A new file, whose name comes after all others: TensorBoard reads them in that order."""
        self.folder.mkdir(exist_ok=True)
        taken = [path.name.removeprefix(START)[:10] for path in self.folder.glob(f"{START}*")]
        after = [int(number) + 1 for number in taken if number.isdigit()]
        return (self.folder / f"{START}{max([int(time.time()), *after]):010}.germline").open("xb")


def _scalars(report: "Report", totals: "Totals", seconds: float) -> dict[str, float | None]:
    """Every number of a generation, by its name in TensorBoard."""
    scores = {name: getattr(report, name) for name in ("best", "mean", "median", "elite")}
    sums = {**totals._asdict(), "generations": report.generation + 1}
    return {
        **{f"score/{name}": value for name, value in scores.items()},
        **{f"total/{name}": value for name, value in sums.items()},
        "generation/sigma": report.sigma,
        "generation/seconds": seconds,
        "generation/frames_per_second": report.frames / seconds if seconds > 0 else None,
        "generation/evaluations": report.evaluations,
        "generation/failures": report.failures,
        "generation/cap": report.cap,
        "generation/rank": report.rank,
        "generation/novelty": report.novelty,
        "generation/archive": report.archive,
        "generation/reward_weight": report.reward_weight,
    }


def _fitness(store: "Store", generation: int) -> list[float]:
    """The fitness of everyone in the population who did not fail."""
    return [
        math.fsum(scored.returns) / len(scored.returns)
        for scored in store.scores(generation)
        if scored.phase == 0 and scored.returns
    ]


def _events(path: Path) -> Iterator[Any]:
    """The records of a file, up to one that was not written to its end."""
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    with path.open("rb") as file:
        while len(head := file.read(12)) == 12:
            (length,) = struct.unpack("<Q", head[:8])
            if length > path.stat().st_size:
                return
            data = file.read(length)
            if len(data) < length or len(file.read(4)) < 4:
                return
            try:
                yield Event.FromString(data)
            except DecodeError:
                return
