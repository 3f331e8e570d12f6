"""What an examination finds, and what it is told about the deployment that it examines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from store.database import Transaction
from store.needs import Needs

# 'not made': nothing is known, for the reason that is given. Nothing is vouched for, nor blamed.
State = Literal["ok", "warning", "error", "not made"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found; `remedies` are commands or SQL statements, ready to copy.

    warning: the worker does its work, but worse than it could, or nobody can be sure that it does.
    error: some of its work is not done, or will go wrong.
    """

    state: State
    found: str
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From where on a measure is worth a line of its own.

    `dead_rows` and `dead_share` must both be exceeded; the share is of a table's live rows.
    """

    statement_timeout: timedelta = timedelta(seconds=2)
    skew_noted: timedelta = timedelta(seconds=5)
    # One heartbeat: a live writer that far off looks as if it had missed one.
    skew_wrong: timedelta = timedelta(minutes=1)
    idle_in_transaction: timedelta = timedelta(minutes=1)
    horizon: timedelta = timedelta(minutes=15)
    horizon_transactions: int = 1_000_000
    dead_rows: int = 10_000
    dead_share: float = 0.5


@dataclass(frozen=True, slots=True)
class Deployment:
    """What is to work on the database: what it needs there, and each job's period.

    `own_time` gives seconds since the Unix epoch, as this machine has them; `purpose` is what that
    which is to work on it is called.
    """

    needs: Needs
    periods: Mapping[str, timedelta]
    own_time: Callable[[], float]
    purpose: str = "worker"
    thresholds: Thresholds = field(default_factory=Thresholds)


@dataclass(frozen=True, slots=True)
class Examined:
    """One read-only transaction on the database, and what is known of the deployment."""

    tx: Transaction
    schema: str
    deployment: Deployment

    @property
    def thresholds(self) -> Thresholds:
        """The deployment's."""
        return self.deployment.thresholds


Check = Callable[[Examined], Iterable[Finding]]


def ok(found: str) -> Finding:
    """Nothing is to be done."""
    return Finding("ok", found)


def warning(found: str, *remedies: str) -> Finding:
    """Somebody should do something about it, at daytime."""
    return Finding("warning", found, remedies)


def error(found: str, *remedies: str) -> Finding:
    """Somebody has to do something about it now."""
    return Finding("error", found, remedies)


def not_made(why: str) -> Finding:
    """Nothing can be said."""
    return Finding("not made", why)
