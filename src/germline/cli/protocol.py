"""The paper's way to score an individual: 200 fresh episodes, and its own figures beside them."""

from typing import TYPE_CHECKING, Any

from germline import paper
from germline.cli.charts import counted, number
from germline.cli.output import say
from germline.errors import InputError, printable

if TYPE_CHECKING:
    from germline.files import GenomeFile
    from germline.run.score import Scores


def compared(file: "GenomeFile") -> dict[str, Any]:
    """The game, its row, if it has one, and what is not played as in the paper."""
    import msgspec

    from germline import tasks

    assert file.task is not None
    if file.task.name != "atari":
        raise InputError(
            f"--protocol: paper is for Atari games, and {file.genome.id} plays {file.task.name}"
        )
    settings = msgspec.to_builtins(tasks.make(file.task.name, file.task.settings))
    game = settings["game"]
    row = paper.TABLE.get(game)
    return {
        "protocol": "paper",
        "game": game,
        "paper": None if row is None else row._asdict(),
        "differences": paper.differences(settings),
    }


def facts(scores: "Scores") -> dict[str, Any]:
    """All that is known of some episodes."""
    return {
        "episodes": len(scores.returns),
        "mean": scores.mean,
        "standard_error": scores.error,
        "median": scores.median,
        "returns": scores.returns,
        "steps": scores.steps,
        "frames": scores.frames,
    }


def say_scores(name: str, scores: "Scores") -> None:
    """The same in a sentence."""
    low, high = min(scores.returns), max(scores.returns)
    say(
        f"{name}: mean {number(scores.mean)} ± {number(scores.error)} over "
        f"{counted(len(scores.returns), 'fresh episode')}, median {number(scores.median)}, "
        f"from {number(low)} to {number(high)}"
    )


def say_compared(found: dict[str, Any]) -> None:
    """The row of the game, and what is not played as in the paper."""
    game = found["game"]
    say(paper.sentence(game) if found["paper"] else f"{game}: the paper has no figures for it")
    if found["differences"]:
        given = ", ".join(f"{name} = {value}" for name, value in found["differences"].items())
        say(printable(f"not played as in the paper: {given}"))
