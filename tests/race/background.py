"""Something that runs while the test goes on, and how the test sees what it waits for."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from tests.race.rows import Rows

WITHIN_SECONDS = 30.0

_T = TypeVar("_T")


def await_condition(holds: Callable[[], bool], what: str) -> None:
    """Ask again and again until it holds; fail where it never does."""
    pause = threading.Event()
    for _ in range(round(WITHIN_SECONDS / 0.002)):
        if holds():
            return
        pause.wait(0.002)
    raise AssertionError(f"waited {WITHIN_SECONDS:.0f} s in vain for: {what}")


class Background(Generic[_T]):
    """Something that runs on a thread of its own while the test goes on."""

    def __init__(self, act: Callable[[], _T], rows: Rows, application: str) -> None:
        self._rows = rows
        self._application = application
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._future: Future[_T] = self._pool.submit(act)

    def result(self) -> _T:
        """What it returned, or the error it raised."""
        try:
            return self._future.result(WITHIN_SECONDS)
        finally:
            self._pool.shutdown(wait=False)

    def waits_for(self, pid: int) -> int:
        """Come back once it waits for a lock of that backend; gives its own backend."""
        return self._standing("%s = any (pg_blocking_pids(pid))", pid)

    def waited(self, milliseconds: int, pid: int) -> None:
        """Come back once it has waited so long for that backend, or need not wait any more."""
        waiting = "%s = any (pg_blocking_pids(pid))"
        since = (
            "exists (select from pg_locks l where l.pid = pg_stat_activity.pid"
            " and clock_timestamp() - l.waitstart > %s * interval '1 millisecond')"
        )
        await_condition(
            lambda: (
                self._future.done() or bool(self._pids(f"{waiting} and {since}", pid, milliseconds))
            ),
            f"{self._application} waited {milliseconds} ms",
        )

    def pauses(self) -> int:
        """Come back once it stands at the closed gate; gives its backend."""
        return self._standing("wait_event = 'PgSleep'")

    def _standing(self, condition: str, *params: object) -> int:
        found: list[int] = []

        def stands() -> bool:
            assert not self._future.done(), f"it never waited: {self._future}"
            found.extend(self._pids(condition, *params))
            return bool(found)

        await_condition(stands, f"{self._application}: {condition}")
        return found[0]

    def _pids(self, condition: str, *params: object) -> list[int]:
        """Its backends in a certain state."""
        rows = self._rows.query(
            "select pid from pg_stat_activity"
            f" where datname = current_database() and application_name = %s and {condition}",
            self._application,
            *params,
        )
        return [row["pid"] for row in rows]
