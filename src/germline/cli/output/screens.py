"""Where an episode is seen: a window, the terminal, lines of text; or it becomes a film."""

import os
import shutil
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from germline.cli.output import is_terminal, say
from germline.cli.output.films import Film
from germline.cli.output.numbers import number
from germline.errors import InputError

if TYPE_CHECKING:
    from germline.tasks.film import Shot


class Text:
    """A line for every step; needs no pictures."""

    drawn = False

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed
        self.due = 0.0

    def __enter__(self) -> "Text":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, where: TracebackType | None
    ) -> None:
        return None

    def show(self, shot: "Shot") -> None:
        """What was done, and what it came to."""
        if shot.action is None:
            return
        end = {"t": "  terminated", "l": "  time limit", "c": "  cap"}.get(shot.end, "")
        action = " ".join(f"{float(part):.4g}" for part in _flat(shot.action))
        say(f"step {shot.step:>5}  action {action}  score {number(shot.score)}{end}")

    def _wait(self, pace: int) -> None:
        """Keep to the natural pace."""
        now = time.monotonic()
        self.due = max(self.due, now - 0.1) + 1 / (pace * self.speed)
        if self.due > now:
            time.sleep(self.due - now)


class Terminal(Text):
    """Pictures in coloured half blocks, as large as the terminal allows."""

    drawn = True

    def __enter__(self) -> "Terminal":
        sys.stdout.write("\x1b[?25l\x1b[2J")  # no cursor, a clear screen
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, where: TracebackType | None
    ) -> None:
        sys.stdout.write("\x1b[0m\x1b[?25h\n")
        sys.stdout.flush()

    def show(self, shot: "Shot") -> None:
        """Draw over the picture before."""
        columns, rows = shutil.get_terminal_size()
        picture = blocks(shot.picture, columns, rows - 3)
        caption = f"step {shot.step}  score {number(shot.score)}"
        sys.stdout.write(f"\x1b[H{picture}\x1b[0m{caption}\x1b[K")
        sys.stdout.flush()
        self._wait(shot.pace)


class Window(Text):
    """Pictures in a window of their own; closing it ends the play."""

    drawn = True

    def __init__(self, speed: float = 1.0) -> None:
        super().__init__(speed)
        self.surface: Any = None

    def __exit__(
        self, kind: type[BaseException] | None, error: object, where: TracebackType | None
    ) -> None:
        if self.surface is not None:
            import pygame

            pygame.display.quit()

    def show(self, shot: "Shot") -> None:
        """Show the picture at its natural size."""
        import pygame

        height, width = shot.picture.shape[:2]  # type: ignore[union-attr]
        if self.surface is None:
            try:
                pygame.display.init()
                self.surface = pygame.display.set_mode((width, height))
            except pygame.error as error:
                raise InputError(f"--how: no window can be opened: {error}") from None
            pygame.display.set_caption("germline")
        for event in pygame.event.get():
            if event.type == pygame.QUIT:
                raise KeyboardInterrupt
        picture = pygame.surfarray.make_surface(shot.picture.swapaxes(0, 1))  # type: ignore[union-attr]
        self.surface.blit(picture, (0, 0))
        pygame.display.flip()
        self._wait(shot.pace)


def choose(out: Path | None, how: str | None, speed: float, *, replace: bool) -> Text | Film:
    """Where to show an episode."""
    if out is not None:
        if how is not None:
            raise InputError("--how: has no meaning beside --out; give one of the two")
        return Film(out, speed, replace=replace)
    if how is None:
        how = "text"
        if is_terminal():
            how = "window" if has_screen() else "terminal"
    if how == "window":
        if not has_screen():
            raise InputError("--how: there is no screen to open a window on; try --how terminal")
        return Window(speed)
    if how == "terminal":
        if not is_terminal():
            raise InputError("--how: terminal needs a terminal; try --how text or --out film.gif")
        return Terminal(speed)
    return Text(speed)


def has_screen() -> bool:
    """Whether a window could be opened."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def blocks(picture: Any, columns: int, rows: int) -> str:  # noqa: ANN401 - uint8 [h, w, 3]
    """A picture in half blocks, each two pixels above each other, in 24-bit colours."""
    import numpy as np

    height, width = picture.shape[:2]
    scale = min(columns / width, 2 * rows / height)
    wide, high = max(1, int(width * scale)), max(2, int(height * scale) // 2 * 2)
    small = _averaged(_averaged(picture.astype(np.float32), high, 0), wide, 1).astype(np.uint8)
    lines = []
    for top, bottom in zip(small[0::2].tolist(), small[1::2].tolist(), strict=True):
        cells = [
            f"\x1b[38;2;{a[0]};{a[1]};{a[2]};48;2;{b[0]};{b[1]};{b[2]}m▀"
            for a, b in zip(top, bottom, strict=True)
        ]
        lines.append("".join(cells) + "\x1b[0m\x1b[K\n")
    return "".join(lines)


def _averaged(picture: Any, count: int, axis: int) -> Any:  # noqa: ANN401 - arrays
    """The mean of the pixels that fall together along an axis."""
    import numpy as np

    size = picture.shape[axis]
    if count >= size:
        return np.take(picture, np.arange(count) * size // count, axis)
    edges = np.arange(count) * size // count
    widths = np.diff([*edges, size])
    shape = [-1 if i == axis else 1 for i in range(picture.ndim)]
    return np.add.reduceat(picture, edges, axis) / widths.reshape(shape)


def _flat(action: Any) -> list[Any]:  # noqa: ANN401 - a number or an array
    import numpy as np

    return np.ravel(action).tolist()
