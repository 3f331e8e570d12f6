"""What a process needs to run jobs: settings, policy, and a database opened after the fork."""

from __future__ import annotations

import mmap
import random
import threading
import time
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property

from config.policy import Policy, load_policy
from config.settings import Settings, load_settings
from store.batches import BatchSize, Stamp
from store.database import Database, Limits
from store.housekeeping import Retentions
from store.release_elsewhere import Elsewhere
from store.release_sessions import Drain
from tasks.context import Context, guards_of
from worker.loops import Loops
from worker.pace import Pace, Standbys
from worker.release_http import HttpRelease
from worker.schedule import Entry, entries

# How long past its budget a part may be before its process must be gone.
GRACE = timedelta(minutes=2)


class StopFlag:
    """Says that the process is to end. WHY not an Event: a fork must hear of it, too."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 1)

    def set(self) -> None:
        """Every process that has the flag is to end."""
        self._shared[0] = 1

    def is_set(self) -> bool:
        """Whether it is to end."""
        return self._shared[0] == 1


@dataclass
class Process:
    """One process's settings and policy, and its connections, made when first needed."""

    settings: Settings
    policy: Policy
    all_in_one: bool = False
    stopping: StopFlag = field(default_factory=StopFlag)
    loops: Loops = field(init=False)
    # How many processes share the pace of one worker.
    sharers: int = field(default=1, init=False)

    def __post_init__(self) -> None:
        """WHY not when first needed: forks are to share them."""
        self.loops = Loops(self.settings.liveness_limit)

    @cached_property
    def database(self) -> Database:
        """The ledger's database; never used before a fork by both sides of it."""
        return open_database(self.settings)

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """The cadence by job."""
        return entries(self.policy.schedule)

    @cached_property
    def pace(self) -> Pace:
        """How fast the process may change rows."""
        rate = self.settings.max_rows_per_second / self.sharers
        return Pace(rate, time.monotonic, time.sleep)

    @cached_property
    def standbys(self) -> Standbys | None:
        """What holds the process back while the database's standbys lag; None: nothing does."""
        most = self.settings.replication_lag_max
        if most is None:
            return None
        return Standbys(self.database, most, time.monotonic, time.sleep)

    def keep_pace(self, rows: int, stop: Callable[[], bool]) -> None:
        """Wait before the next batch, after one of so many rows, or until `stop` says to end."""
        self.pace.keep(rows, stop)
        if self.standbys is not None:
            self.standbys.wait(stop)

    def has_workers(self, count: int) -> None:
        """So many parts are worked on at a time, whatever the settings said; before the first."""
        self.settings = self.settings.model_copy(update={"worker_concurrency": count})

    def forget_connections(self) -> None:
        """In a forked child: leave the parent's connections to the parent, and share its pace."""
        self.__dict__.pop("database", None)
        self.__dict__.pop("pace", None)
        self.__dict__.pop("standbys", None)
        self.sharers = self.settings.worker_concurrency

    def close(self) -> None:
        """Close the connections. Safe to repeat."""
        database: Database | None = self.__dict__.pop("database", None)
        if database is not None:
            database.close()

    def context(
        self,
        stamp: Stamp,
        *,
        policy: Policy | None = None,
        lifted: Collection[str] = (),
        open_for: timedelta = timedelta.max,
    ) -> Context:
        """What one part of one run is given; `lifted` names guards that do not hold for it.

        `open_for`: how long its maintenance window stays open, which may be less than its budget.
        """
        settings = self.settings
        policy = policy or self.policy
        stop = deadline(min(settings.job_budget, open_for), self.stopping)
        return Context(
            database=self.database,
            policy=policy,
            guards=guards_of(policy.guards, lifted),
            stamp=stamp,
            size=BatchSize(settings.rows_per_batch, settings.scopes_per_batch),
            drain=Drain(
                settings.release_batch,
                settings.release_lease,
                settings.release_attempts,
                settings.release_backoff,
                settings.release_backoff_max,
            ),
            retentions=Retentions(
                settings.journal_retention, settings.run_retention, settings.harvest_retention
            ),
            stop=stop,
            pace=lambda rows: self.keep_pace(rows, stop),
            new_id=uuid.uuid4,
            jitter=random.random,
            release_backend=settings.release_backend,
            elsewhere=self._elsewhere(),
        )

    def _elsewhere(self) -> Elsewhere | None:
        """The system that holds the transcripts, where it is not the ledger. Connects later."""
        settings = self.settings
        if settings.release_url is None:
            return None
        return HttpRelease(
            settings.release_url,
            settings.release_token_file,
            settings.release_timeout,
            settings.release_concurrency,
        )


def deadline(budget: timedelta, stopping: StopFlag) -> Callable[[], bool]:
    """Says when to stop: once the budget is spent, or the process is to end."""
    ends = time.monotonic() + budget.total_seconds()
    return lambda: stopping.is_set() or time.monotonic() >= ends


def open_database(settings: Settings) -> Database:
    """The database that the settings name; connects at first use."""
    if settings.database_url is None:
        raise RuntimeError("no database is named")
    return Database(
        settings.database_url.get_secret_value(),
        settings.ledger_schema,
        Limits(
            connect_timeout=settings.connect_timeout,
            statement_timeout=settings.statement_timeout,
            lock_timeout=settings.lock_timeout,
            idle_in_transaction_timeout=settings.idle_in_transaction_timeout,
            # WHY: every thread may hold one, and the exporter and the clock want one each.
            pool_size=settings.worker_concurrency + 2,
        ),
    )


def read_policy(settings: Settings) -> Policy:
    """The policy that the settings name; without one, nothing is deleted. Raises PolicyError."""
    return Policy.empty() if settings.policy_file is None else load_policy(settings.policy_file)


_process: Process | None = None
_lock = threading.Lock()


def current() -> Process:
    """The process's own; made from its environment at first use. Raises ConfigError."""
    global _process  # noqa: PLW0603 - a process has one
    with _lock:
        if _process is None:
            settings = load_settings()
            _process = Process(settings, read_policy(settings))
        return _process


def install(process: Process) -> None:
    """Use this one instead of the environment's: `run` has its own database and policy."""
    global _process  # noqa: PLW0603 - a process has one
    with _lock:
        _process = process
