"""The jobs as a race sees them: stopped between their steps, or left waiting in the background."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ParamSpec
from uuid import uuid4

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import DictRow

from store.batches import BatchSize, Done, Stamp
from store.database import Database, Limits, Transaction
from store.flip_stale_running import NOTHING_HELD, flip_stale_running
from store.guards import UNGUARDED, Guards
from store.reap import reap
from store.reconcile_parked import NOBODY, Excluded, reconcile_parked
from store.release_sessions import Drain, release_sessions
from store.retention import RetentionPolicy
from tests.race.background import Background
from tests.race.rows import NOW, Rows, kind_of

# Longer than any test waits: what a job waits for has to come. Its statements may go on so long
# only because the server, for its connections, looks for deadlocks late.
PATIENT = Limits(lock_timeout=timedelta(seconds=60), statement_timeout=timedelta(seconds=60))
_LATE = "-c deadlock_timeout=120s"
# Shorter than any test waits: what somebody holds is passed over.
HASTY = Limits(lock_timeout=timedelta(milliseconds=40))
ONE_SCOPE = ("s",)

_P = ParamSpec("_P")


class SteppedDatabase(Database):
    """A database on which a test acts just before or after a statement of a job.

    Each act is done once, in the middle of the job's own open transaction.
    """

    def __init__(self, url: str, schema: str, limits: Limits, application: str = "job") -> None:
        options = _LATE if limits is PATIENT else ""
        conninfo = make_conninfo(url, application_name=application, options=options)
        super().__init__(conninfo, schema, limits)
        self.application = application
        self.backend_pid = 0
        self._acts: dict[tuple[str, str], Callable[[], object]] = {}
        self.ran: Counter[str] = Counter()

    def before(self, statement: str, act: Callable[[], object]) -> None:
        """Do this when the statement is about to run for the first time."""
        self._acts["before", statement] = act

    def after(self, statement: str, act: Callable[[], object]) -> None:
        """Do this when the statement has run for the first time; nothing is committed yet."""
        self._acts["after", statement] = act

    def forget(self) -> list[tuple[str, str]]:
        """Start afresh; gives the acts whose moment never came."""
        left = [*self._acts]
        self._acts.clear()
        self.ran.clear()
        return left

    def step(self, moment: str, statement: str) -> None:
        act = self._acts.pop((moment, statement), None)
        if act is not None:
            act()

    @contextmanager
    def transaction(self, **how: Any) -> Iterator[Transaction]:
        with super().transaction(**how) as tx:
            self.backend_pid = tx._connection.info.backend_pid
            yield _SteppedTransaction(tx._connection, self)


class _SteppedTransaction(Transaction):
    def __init__(self, connection: psycopg.Connection[DictRow], database: SteppedDatabase) -> None:
        super().__init__(connection, database.statements)
        self._database = database

    def rows(self, statement: str, params: Mapping[str, Any] | None = None) -> list[DictRow]:
        with self._stepped(statement):
            return super().rows(statement, params)

    def one(self, statement: str, params: Mapping[str, Any] | None = None) -> DictRow | None:
        with self._stepped(statement):
            return super().one(statement, params)

    def do(self, statement: str, params: Mapping[str, Any] | None = None) -> int:
        with self._stepped(statement):
            return super().do(statement, params)

    @contextmanager
    def _stepped(self, statement: str) -> Iterator[None]:
        self._database.step("before", statement)
        yield
        self._database.ran[statement] += 1
        self._database.step("after", statement)


class Jobs:
    """The jobs on one ledger; each returns what it counted, by 'job/arm' or 'job/arm/cause'.

    Every run that ends is held against the journal: what it said is what is written there.
    """

    def __init__(self, rows: Rows, database: SteppedDatabase, size: BatchSize | None = None):
        self._rows = rows
        self.database = database
        self.size = size or BatchSize()

    def reap(
        self,
        max_age_ms: float | None = None,
        keep: int | None = None,
        scopes: Iterable[str] = ONE_SCOPE,
        *,
        guards: Guards = UNGUARDED,
    ) -> dict[str, int]:
        stamp = Stamp(NOW, uuid4())
        policy = RetentionPolicy(max_age_ms=max_age_ms, keep=keep)
        policies = [(scope, policy) for scope in scopes]
        batches = reap(self.database, policies, stamp, self.size, guards=guards)
        return self._counted("reap", stamp, batches)

    def flip(
        self,
        age_ms: float = 60_000,
        scopes: Iterable[str] = ONE_SCOPE,
        *,
        ask_checkpoints: bool = True,
        now: int = NOW,
        guards: Guards = UNGUARDED,
        held: Mapping[str, str] = NOTHING_HELD,
    ) -> dict[str, int]:
        stamp = Stamp(now, uuid4())
        ages = [(scope, age_ms) for scope in scopes]
        batches = flip_stale_running(
            self.database,
            ages,
            stamp,
            self.size,
            ask_checkpoints=ask_checkpoints,
            guards=guards,
            held=held,
        )
        return self._counted("flip_stale_running", stamp, batches)

    def reconcile(
        self,
        lease_ms: float | None = 60_000,
        scopes: Iterable[str] = ONE_SCOPE,
        excluded: Excluded = NOBODY,
        *,
        now: int = NOW,
        guards: Guards = UNGUARDED,
    ) -> dict[str, int]:
        stamp = Stamp(now, uuid4())
        leases = [(scope, lease_ms) for scope in scopes]
        batches = reconcile_parked(self.database, leases, stamp, self.size, excluded, guards)
        return self._counted("reconcile_parked", stamp, batches)

    def release(
        self, now: int = NOW, drain: Drain | None = None, scopes: Iterable[str] = ONE_SCOPE
    ) -> dict[str, int]:
        stamp = Stamp(now, uuid4())
        batches = release_sessions(
            self.database, [*scopes], stamp, drain or Drain(), uuid4, lambda: 0.0
        )
        return self._counted("release_sessions", stamp, batches)

    def start(
        self, job: Callable[_P, dict[str, int]], *args: _P.args, **kwargs: _P.kwargs
    ) -> Background[dict[str, int]]:
        """Run one of the jobs in the background."""
        return Background(lambda: job(*args, **kwargs), self._rows, self.database.application)

    def _counted(self, job: str, stamp: Stamp, batches: Iterator[Done]) -> dict[str, int]:
        said: Counter[str] = Counter()
        for done in batches:
            for (arm, cause), count in done.by_kind.items():
                said[kind_of(job, arm, cause)] += count
        counted = {kind: count for kind, count in said.items() if count}
        assert counted == self._rows.journal(stamp.run_id)
        return counted
