"""How a test waits: it asks again and again, and fails by name when the time is up."""

import time
from collections.abc import Callable

WITHIN_S = 60.0
_ASKS_EVERY_S = 0.02


def wait_until(
    holds: Callable[[], object],
    what: str,
    within_s: float = WITHIN_S,
    every_s: float = _ASKS_EVERY_S,
) -> None:
    """Come back as soon as it holds; an AssertionError that says `what` never happened if not."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"waited {within_s:.0f} s in vain for: {what}"
        time.sleep(every_s)
