"""The files of the page: our own, and the charts' library as it was installed."""

from functools import cache
from importlib import resources
from pathlib import Path

KINDS = {".css": "text/css", ".js": "text/javascript", ".html": "text/html"}


@cache
def page() -> dict[str, tuple[bytes, str]]:
    """All files by name, with their media types."""
    charts = resources.files("plotly").joinpath("package_data/plotly.min.js")
    found = {"plotly.js": (charts.read_bytes(), KINDS[".js"])}
    for path in resources.files("germline.dashboard").joinpath("page").iterdir():
        kind = KINDS.get(Path(path.name).suffix)
        if kind is not None:
            found[path.name] = path.read_bytes(), kind
    return found
