"""Films: every picture with its score and step below, the same bytes for the same play."""

import os
from collections.abc import Iterable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from germline.cli.output.numbers import number
from germline.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import ImageFont

    from germline.files import TaskRef
    from germline.tasks.film import Shot

ENDINGS = (".gif", ".mp4", ".webm", ".mov", ".mkv")
MAX_PICTURES = 10_000  # of a GIF, which is put together in memory
HEIGHT = 14  # of the caption, at the size in which letters are 6 wide and 11 high
READABLE = 300  # columns above which letters are drawn larger
# Neither times nor versions in the file, and bits that do not depend on the number of cores.
BITEXACT = [
    *("-threads", "1", "-map_metadata", "-1"),
    *("-fflags", "+bitexact", "-flags:v", "+bitexact"),
]


def check(option: str) -> None:
    """Refuse to film where the packages for it are absent; `option` is what asked for a film."""
    for name in ("imageio", "PIL"):
        if find_spec(name) is None:
            raise InputError(
                f"{option}: {name} is not here, add it with: pip install 'germline[video]'"
            )


def filmable(about: "TaskRef") -> bool:
    """Whether there is anything to be watched of a task."""
    from germline import tasks
    from germline.tasks.film import Filmable

    task = tasks.make(about.name, about.settings)
    task.close()
    return isinstance(task, Filmable)


class Film:
    """A file, written whole or not at all."""

    drawn = True

    def __init__(self, path: Path, speed: float = 1.0, *, replace: bool) -> None:
        from germline import disk

        disk.check_writable(path, replace=replace)
        if not path.parent.is_dir():
            raise InputError(f"{path}: {path.parent} is not a folder")
        if path.suffix.lower() not in ENDINGS:
            raise InputError(f"{path}: is no film by its ending; there are {', '.join(ENDINGS)}")
        check("--out")
        self.path = path
        self.speed = speed
        # The ending stays: it says what is written.
        self.draft = path.with_name(f".germline-{os.getpid()}{path.suffix}")
        self.writer: Any = None

    def __enter__(self) -> "Film":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, where: TracebackType | None
    ) -> None:
        try:
            if self.writer is not None and (kind is None or not isinstance(self.writer, Gif)):
                self.writer.close()
                if kind is None:
                    self.draft.replace(self.path)
        finally:
            self.draft.unlink(missing_ok=True)

    def show(self, shot: "Shot") -> None:
        """Add a picture."""
        if self.writer is None:
            self.writer = self._opened(shot.pace * self.speed)
        self.writer.append_data(captioned(shot))

    def _opened(self, pace: float) -> Any:  # noqa: ANN401 - imageio's writer, or one like it
        try:
            self.draft.touch()
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written: {error.strerror}") from None
        if self.path.suffix.lower() == ".gif":
            return _GifFile(self.draft, pace)
        import imageio

        kind = self.path.suffix.lower()
        coded = {"codec": "libvpx-vp9", "quality": None} if kind == ".webm" else {"quality": 8}
        parameters = [*BITEXACT, *(("-crf", "24", "-b:v", "0") if kind == ".webm" else ())]
        try:
            return imageio.get_writer(
                self.draft, fps=pace, macro_block_size=2, output_params=parameters, **coded
            )
        except Exception as error:  # of whatever plugin it found, or did not
            raise InputError(f"{self.path}: cannot be made: {error}") from None


class Gif:
    """An animated GIF that is put together in memory, a byte per pixel."""

    def __init__(self) -> None:
        self.pictures: list[Image] = []
        self.pace = 1.0

    def show(self, shot: "Shot") -> None:
        """Add a picture."""
        self.pace = shot.pace
        self.append_data(captioned(shot))

    def append_data(self, picture: Any) -> None:  # noqa: ANN401 - uint8 [h, w, 3]
        """Add a picture as it is; no colour of it changes where there are at most 256."""
        from PIL import Image

        if len(self.pictures) >= MAX_PICTURES:
            raise InputError(
                f"a GIF has at most {MAX_PICTURES:,} pictures; end it with --cap, or write .mp4"
            )
        self.pictures.append(Image.fromarray(picture).quantize(dither=Image.Dither.NONE))

    def save(self, out: Any, pace: float) -> None:  # noqa: ANN401 - a path or a stream
        """Write it, to be shown without end."""
        first, *others = self.pictures
        # GIFs count in hundredths of a second, and many programs show fewer than two as ten.
        duration = 10 * max(2, round(100 / pace))
        first.save(out, "GIF", save_all=True, append_images=others, duration=duration, loop=0)

    @property
    def data(self) -> bytes:
        """The file as bytes."""
        import io

        stream = io.BytesIO()
        self.save(stream, self.pace)
        return stream.getvalue()


class _GifFile(Gif):
    """The same as a file, written when it is closed."""

    def __init__(self, path: Path, pace: float) -> None:
        super().__init__()
        self.path = path
        self.pace = pace

    def close(self) -> None:
        self.save(self.path, self.pace)


def captioned(shot: "Shot") -> Any:  # noqa: ANN401 - uint8 [h, w, 3]
    """A picture with its score and step in a strip below; both sides come out even.

    Nothing of the picture is hidden. Letters are as large as its width allows to be read.
    """
    import numpy as np

    picture: Any = shot.picture
    height, width = picture.shape[:2]
    scale = max(1, width // READABLE)
    strip = _strip(width // scale, number(shot.score), f"{shot.step:,}")
    strip = np.repeat(np.repeat(strip, scale, 0), scale, 1)
    below = np.zeros((len(strip) + (height + len(strip)) % 2, width, 3), np.uint8)
    below[: len(strip), : strip.shape[1]] = strip[..., None]
    whole = np.concatenate([picture, below])
    return np.pad(whole, ((0, 0), (0, width % 2), (0, 0)))


def _strip(width: int, score: str, step: str) -> Any:  # noqa: ANN401 - uint8 [HEIGHT, width]
    """The score on the left and the step on the right, without words where these do not fit."""
    import numpy as np
    from PIL import Image, ImageDraw

    font = _font()

    def long(texts: Iterable[str]) -> float:
        return sum(font.getlength(text) + 4 for text in texts)

    left, right = f"score {score}", f"step {step}"
    if long((left, right)) > width:
        left, right = score, step
    strip = Image.new("L", (width, HEIGHT))
    draw = ImageDraw.Draw(strip)
    draw.text((2, 1), left, fill=255, font=font)
    if long((left, right)) <= width:
        draw.text((width - 2 - font.getlength(right), 1), right, fill=160, font=font)
    return np.asarray(strip)


@lru_cache
def _font() -> "ImageFont":
    """Pillow's own letters, which are pixels and therefore the same everywhere."""
    from PIL import ImageFont

    return ImageFont.load_default_imagefont()
