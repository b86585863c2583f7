"""How many at once: powers of two, so that a few compilations serve any number of players.

None of these numbers depends on how many play. The shape of a step decides how it is rounded, and
is a matter of the task, the network and the device alone.
"""

import jax

SMALLEST = 64
CACHE = 2**19  # bytes of weights that a core's cache keeps from step to step
READ = 2**27  # bytes that an accelerator reads in about the time its kernels take to start
WIDE, WIDEST = 2**12, 2**16
UNKNOWN = 2**32  # bytes of memory where a device does not say


def padded(count: int) -> int:
    """The next power of two, at least 64."""
    return max(SMALLEST, 1 << (count - 1).bit_length())


def power_within(number: int) -> int:
    """The largest power of two that is not above a number, at least 1."""
    return 1 << max(0, number.bit_length() - 1)


def accelerated() -> bool:
    """Whether JAX computes on something wider than a processor's cores."""
    return jax.default_backend() != "cpu"


def share_of_memory() -> int:
    """Bytes for episodes under way, and as many for those that wait: a quarter of a device's."""
    found = jax.local_devices()[0].memory_stats() or {}
    return int(found.get("bytes_limit", UNKNOWN)) // 4


def core_slots(size: int) -> int:
    """How many networks of `size` weights a core's cache holds beside each other: 4 to 16.

    Few, because the last episode of a queue is played by all slots, however few are alive.
    """
    return max(4, min(16, power_within(CACHE // (4 * size))))


def accelerator_slots(size: int) -> int:
    """How many slots of `size` bytes an accelerator steps at once: 4,096 to 65,536 if they fit.

    No more than keep it busy, because a queue ends with its longest episode, played by all slots.
    """
    busy = max(WIDE, min(WIDEST, power_within(READ // size)))
    return min(busy, power_within(share_of_memory() // size))
