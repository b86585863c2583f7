"""Sizes rounded up, so that a few compilations serve any number of players and episodes."""

SMALLEST = 64


def padded(count: int) -> int:
    """The next power of two, at least 64."""
    return max(SMALLEST, 1 << (count - 1).bit_length())
