"""Templates: text files of this package in which `@{name}` stands for a value."""

import re
from collections.abc import Mapping
from importlib.resources import files

_PLACE = re.compile(r"@\{([a-z_]+)\}")


def template(path: str) -> str:
    """The text of a template, such as "slurm/job.sh"."""
    return files(__package__).joinpath("templates", path).read_text(encoding="utf-8")


def render(text: str, values: Mapping[str, object]) -> str:
    """Fill in the values; a name without one is a mistake in the template."""
    return _PLACE.sub(lambda found: str(values[found[1]]), text)
