"""How fast a process may change rows, so that live writers hardly notice it."""

from __future__ import annotations

import threading
from collections.abc import Callable

# How long a wait goes on without asking whether the process is to end, in seconds.
_ASKS_EVERY_S = 0.1


class Pace:
    """Holds what a process changes, on all its threads together, down to so many rows a second.

    The time that a batch took counts towards its own rows and no others: a job that was slow for a
    while may not make up for it. `clock` gives seconds that never go back; `sleep` waits for some.
    """

    def __init__(
        self,
        rows_per_second: float,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self.rows_per_second = rows_per_second
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        # When what was changed so far is paid for.
        self._paid_at = clock()

    def keep(self, rows: int, stop: Callable[[], bool]) -> None:
        """Wait after a batch of so many rows, or until `stop` says to end."""
        with self._lock:
            self._paid_at = max(self._paid_at + rows / self.rows_per_second, self._clock())
            until = self._paid_at
        while (left := until - self._clock()) > 0 and not stop():
            self._sleep(min(left, _ASKS_EVERY_S))
