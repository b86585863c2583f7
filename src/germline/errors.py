"""The one error for what a user gave, told in one sentence that names it."""

import re

import msgspec

LONGEST = 500


class InputError(ValueError):
    """A file, option or argument is wrong; the message names it and says what was expected.

    The command line prints the message and exits with code 2.
    """


def explain(error: msgspec.DecodeError) -> str:
    """Turn msgspec's "Expected ... - at `$.a[0].b`" into "a[0].b: expected ..."."""
    message, at, path = str(error).rpartition(" - at `$")
    if not at:
        message, path = path, ""
    field = path.removesuffix("`").removeprefix(".")
    message = message.replace("`", "").replace(" | null", "").replace(" | object", " or a table")
    message = re.sub(
        r"^(Expected|Object|Invalid|Number|Integer)\b", lambda m: m[0].lower(), message
    )
    return f"{field}: {message}" if field else message


def shorten(text: str) -> str:
    """Cut a message that quotes something endless to the length of a sentence."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def told(error: BaseException) -> str:
    """The kind of an error and what it says, cut to the length of a sentence."""
    return shorten(f"{type(error).__name__}: {error}")


def printable(text: str) -> str:
    """Escape control characters and line breaks: names in files must not steer a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
