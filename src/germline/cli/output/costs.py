"""What a run costs, as fields of JSON and in words."""

from typing import TYPE_CHECKING, Any

from germline.cli.output.numbers import number

if TYPE_CHECKING:
    from germline.run.cost import ToGo
    from germline.run.stop import Totals


def fields(totals: "Totals", to_go: "ToGo | None") -> dict[str, Any]:
    """What stands beside the totals; None where nothing was paid, or no end can be foreseen."""
    from germline.run.cost import per_billion

    return {"cost_per_billion_frames": per_billion(totals), "to_go": to_go}


def rest(cost_per_billion_frames: float | None, to_go: "ToGo | None") -> str:
    """What a billion frames cost, and what is to go, as far as they are known."""
    parts = []
    if cost_per_billion_frames is not None:
        parts.append(f"{number(cost_per_billion_frames)} per billion frames")
    if to_go is not None:
        parts.append(f"{'at most ' if to_go.at_most else ''}{number(to_go.cost)} to go")
    return ", ".join(parts)


def line(cost: float, cost_per_billion_frames: float | None, to_go: "ToGo | None") -> str:
    """The same after the cost so far."""
    return ", ".join(filter(None, (number(cost), rest(cost_per_billion_frames, to_go))))
