"""One connection to Postgres, which does not wait for ever for an answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, Self, TypeVar

import psycopg
from psycopg import errors as pg
from psycopg.abc import PQGen
from psycopg.rows import DictRow

from store.translation import line_of

_Answer = TypeVar("_Answer")

# How long past a statement's own limit its answer is waited for.
ANSWER_GRACE: Final = timedelta(seconds=5)


class Connection(psycopg.Connection[DictRow]):
    """A connection that gives up on a server from which nothing is heard any more.

    WHY: Postgres ends a statement by its own time-out, and says so to nobody where the network
    swallows what it sends. The kernel's time-outs see nothing of it as long as something on the way
    acknowledges every packet.
    """

    patience: timedelta | None = None

    @classmethod
    def connect(cls, *args: Any, **kwargs: Any) -> Self:
        """Connect, and tell `heard` why that failed, or None. WHY: a pool keeps it to itself."""
        heard: Callable[[str | None], None] = kwargs.pop("heard")
        try:
            connection = super().connect(*args, **kwargs)
        except psycopg.Error as error:
            heard(line_of(error))
            raise
        heard(None)
        return connection

    def wait(
        self, gen: PQGen[_Answer], interval: float = 0.1, timeout: float | None = None
    ) -> _Answer:
        """The answer that is waited for. Raises OperationalError, and is closed, without one."""
        if timeout is not None or self.patience is None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.patience.total_seconds())
        except pg._WaitTimeout:  # noqa: SLF001 - it says itself that a caller is to handle it
            # WHY closed at once: a rollback would wait for its answer just as long.
            self.close()
            raise psycopg.OperationalError("nothing was heard of it in time") from None
