"""How fast a process may change rows, so that live writers hardly notice it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from store.database import Database
from store.errors import StoreError
from store.replication import Lag, replication

log = logging.getLogger("sema_maintenance.pace")

# How often it is asked how far the standbys are behind, in seconds.
_LOOKS_EVERY_S: Final = 1.0
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


class Standbys:
    """Holds a process back while its database's standbys are too far behind.

    One that cannot be seen holds nothing back; the log says so once. `clock` and `sleep` as above.
    """

    def __init__(
        self,
        database: Database,
        most: timedelta,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._database = database
        self._most_s = most.total_seconds()
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._lag = Lag()
        self._looked_at: float | None = None
        self._behind = False
        self._unseen = False

    def wait(self, stop: Callable[[], bool]) -> None:
        """Wait until no standby is too far behind, or until `stop` says to end."""
        while self._too_far() and not stop():
            self._sleep(_ASKS_EVERY_S)

    def _too_far(self) -> bool:
        with self._lock:
            now_s = self._clock()
            if self._looked_at is None or now_s - self._looked_at >= _LOOKS_EVERY_S:
                self._look(now_s)
            return self._behind

    def _look(self, now_s: float) -> None:
        self._looked_at = now_s
        try:
            seen = replication(self._database)
        except StoreError as error:
            # WHY no wait: a job meets the same trouble, and says it.
            log.debug("standbys_not_seen", extra={"error": str(error)})
            self._behind = False
            return
        if seen.unseen and not self._unseen:
            log.warning("standbys_not_seen", extra={"standbys": seen.unseen, "remedy": _GRANT})
        self._unseen = seen.unseen > 0
        behind_s = self._lag.seconds(seen, now_s)
        too_far = behind_s > self._most_s
        if too_far != self._behind:
            event = "waiting_for_standbys" if too_far else "standbys_caught_up"
            log.log(
                logging.WARNING if too_far else logging.INFO,
                event,
                extra={"behind_seconds": round(behind_s), "most_seconds": self._most_s},
            )
        self._behind = too_far


_GRANT: Final = "grant pg_read_all_stats to the worker's role, or unset MAINT_REPLICATION_LAG_MAX"
