"""What several commands read in the same way."""

from typing import Any


def pairs(given: list[str]) -> dict[str, Any]:
    """Read key=value pairs; values are JSON where they can be, text otherwise."""
    import msgspec

    from germline.errors import InputError

    settings = {}
    for pair in given:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise InputError(f"--set: {pair!r} is not key=value")
        try:
            settings[key] = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            settings[key] = text
    return settings
