"""Figures that are read in the background: whoever asks gets what is known in the time they have.

Reading must neither make a scrape wait nor keep the database busy. So a figure is read only when
somebody asks, by one thread however many ask, and then left alone for twenty times as long as the
reading took: it never costs more than about a twentieth of the database's time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from store.errors import StoreError

log = logging.getLogger("sema_maintenance.paced")

T = TypeVar("T")

# How many times as long as a reading took it is left alone.
REST: Final = 20
_DOUBLINGS_MAX: Final = 20


def pause_s(at_least_s: float, took_s: float, failures: int, rest: float = REST) -> float:
    """For how long a figure is left alone after a reading that took `took_s`.

    A first failure is tried again soon, since a database that comes back must not be missed; only
    one that keeps failing is given the rest that its cost asks for.
    """
    longest_s = max(at_least_s, took_s * rest)
    if not failures:
        return longest_s
    return min(longest_s, at_least_s * 2.0 ** min(failures - 1, _DOUBLINGS_MAX))


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """What is known of a figure: the value last read, and why the last try failed, if it did.

    `late`: a reading was under way and did not end in the time given. `age_s`: how long ago the
    value was read. `since_s`: for how long reading has worked, or has not, as far as it was tried.
    """

    value: T | None
    problem: str | None
    late: bool = False
    age_s: float | None = field(default=None, compare=False)
    since_s: float | None = field(default=None, compare=False)


class Paced(Generic[T]):
    """One figure. `turn` is held while it is read: figures that share one are read in turn.

    `rest` 0 is for what costs nothing: it is read every `at_least_s`, however long that took.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], T],
        at_least_s: float,
        *,
        turn: threading.Lock | None = None,
        rest: float = REST,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._read = read
        self._at_least_s = at_least_s
        self._turn = turn or threading.Lock()
        self._rest = rest
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()
        self._closed = False
        self._due_at = monotonic()
        self._failures = 0
        self._reading: Reading[T] = Reading(None, None)
        self._begun_at = self._due_at
        self._read_at: float | None = None
        # When reading last began to fail, or to work.
        self._turned_at: float | None = None

    def ask(self, wait_s: float) -> Reading[T]:
        """What is known, after up to `wait_s` of waiting for a reading that is due or under way."""
        with self._lock:
            if not self._closed and self._idle.is_set() and self._monotonic() >= self._due_at:
                self._begin()
        return self.known(wait_s)

    def known(self, wait_s: float = 0) -> Reading[T]:
        """What is known, without asking for more."""
        late = not self._idle.wait(max(0.0, wait_s))
        with self._lock:
            turned_at = self._turned_at
            if late and not self._failures:
                turned_at = self._begun_at
            return Reading(
                self._reading.value,
                self._reading.problem,
                late,
                age_s=self._ago(self._read_at),
                since_s=self._ago(turned_at),
            )

    def _ago(self, at: float | None) -> float | None:
        return None if at is None else max(0.0, self._monotonic() - at)

    def close(self, wait_s: float) -> None:
        """Read no more; waits up to `wait_s` for a reading that is under way."""
        with self._lock:
            self._closed = True
        self._idle.wait(wait_s)

    def _begin(self) -> None:
        self._idle.clear()
        self._begun_at = self._monotonic()
        try:
            threading.Thread(target=self._read_once, name=self._name, daemon=True).start()
        except RuntimeError as error:  # the machine has no thread left
            self._reading = Reading(self._reading.value, str(error))
            self._idle.set()

    def _read_once(self) -> None:
        value, problem = None, None
        with self._turn:
            begun = self._monotonic()
            try:
                value = self._read()
            except StoreError as error:
                problem = str(error)
            except Exception as error:
                # WHY broadly: a thread that ends without a word would end this figure for good.
                log.debug("unexpected", exc_info=error)
                problem = f"an unexpected {type(error).__name__}; log level debug shows where"
            ended = self._monotonic()
        with self._lock:
            self._say(problem)
            if problem and not self._failures:
                self._turned_at = self._begun_at
            elif not problem and (self._failures or self._read_at is None):
                self._turned_at = ended
            self._read_at = self._read_at if problem else ended
            self._failures = self._failures + 1 if problem else 0
            self._due_at = ended + pause_s(
                self._at_least_s, ended - begun, self._failures, self._rest
            )
            self._reading = Reading(self._reading.value if problem else value, problem)
            self._idle.set()

    def _say(self, problem: str | None) -> None:
        """Log when reading begins to fail and when it works again, not every time."""
        if problem and not self._failures and not self._closed:
            log.warning("figure_not_read", extra={"figure": self._name, "error": problem})
        elif self._failures and not problem:
            log.info("figure_read_again", extra={"figure": self._name})
