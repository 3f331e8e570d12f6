"""The beat's scheduler: Celery's own, which leaves a mark at each turn and forgets no slot."""

from __future__ import annotations

import logging
from typing import Any

from celery import beat

from worker.context import current
from worker.queues import RETRIED

log = logging.getLogger("sema_maintenance.beat")


class Scheduler(beat.Scheduler):
    """Sends each tick until it is sent; keeps no file of when that was.

    A tick says "look", and its slot is claimed in Postgres: to send one again costs nothing.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._loop = current().loops.beat
        self._unsent = False
        super().__init__(*args, **kwargs)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send what is due, and say how long to sleep, in seconds."""
        self._loop.turned()
        self._unsent = False
        wait_s: float = super().tick(*args, **kwargs)
        if self._unsent:
            # WHY: looks at every entry anew, at the time each was last sent.
            self._heap = None
            wait_s = self.max_interval
        self._loop.turned()
        return wait_s

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send one tick; one that cannot be sent stays due.

        WHY: by itself the library would wait for the next slot, which may be a day away.
        """
        try:
            self.apply_async(entry, producer=producer, advance=False)
        except beat.SchedulingError as error:
            self._unsent = True
            self.schedule[entry.name].last_run_at = entry.last_run_at
            self._loop.lost(str(error))
        else:
            self._loop.reached()
            log.debug("tick_sent", extra={"entry": entry.name})

    def _ensure_connected(self) -> Any:
        """Connect, however long that takes: a beat that waits for its broker turns all the same."""

        def failed(error: Exception, _interval_s: float) -> None:
            self._loop.lost(str(error))

        return self.connection.ensure_connection(
            failed, None, callback=self._loop.turned, **RETRIED
        )
