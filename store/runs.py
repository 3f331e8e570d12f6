"""Runs: who claimed a tick, what its parts are, how each ended, and what the journal has of it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, Literal
from uuid import UUID

from psycopg.rows import DictRow

from store.database import Database, Transaction

PartState = Literal["succeeded", "failed"]

_FORGOTTEN: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Run:
    """A claimed tick or an operator's command. Times are milliseconds since the Unix epoch.

    `report` counts what the journal has of the run, by 'arm' or 'arm/cause'; `more` says that a
    budget ended before the work did. `failing`: what is wrong, by scope, where a job could not do
    all it should; such a run is 'partial' unless it failed.
    """

    run_id: UUID
    job: str
    slot: int | None
    requested_by: str
    overrides: tuple[str, ...]
    state: str
    started_at: int
    finished_at: int | None
    report: dict[str, int] = field(default_factory=dict)
    error: str | None = None
    more: bool = False
    failing: dict[str, str] = field(default_factory=dict)
    # Of a command by hand: the scopes (None: all) and the arms that were given, by name, and what
    # other flags named.
    asked: dict[str, Any] | None = None
    # By how much the slot before this tick's lay in the future: a clock was ahead then.
    ahead_ms: int = 0


def _run(row: DictRow) -> Run:
    return Run(**{**row, "overrides": tuple(row["overrides"])})


@dataclass(frozen=True, slots=True)
class Part:
    """One message's worth of a run; `scopes` None: the job is asked for all there is.

    `request_id` and `policy` are those of the operator's request that it belongs to: JSON as it
    stands there, not judged yet, or None for the policy file.
    """

    run_id: UUID
    part: int
    job: str
    scopes: tuple[str, ...] | None
    overrides: tuple[str, ...] = ()
    request_id: UUID | None = None
    policy: Any = None


def clock(tx: Transaction) -> int:
    """The database's time in milliseconds since the Unix epoch."""
    row = tx.one("clock")
    assert row is not None, "a clock always answers"  # noqa: S101 - narrows the type
    return int(row["now"])


def claim_tick(database: Database, job: str, period: timedelta, run_id: UUID) -> Run | None:
    """Claim the job's present slot and open its run; None: somebody did it already.

    Safe to repeat, and for any number of beats at once.
    """
    with database.transaction() as tx:
        now = clock(tx)
        period_ms = period // timedelta(milliseconds=1)
        claimed = tx.one("claim_slot", {"job": job, "now": now, "period_ms": period_ms})
        if claimed is None:
            return None
        run = Run(run_id, job, claimed["slot"], "schedule", (), "running", now, None)
        return _open(tx, replace(run, ahead_ms=claimed["ahead_ms"]))


def open_run(
    database: Database,
    job: str,
    requested_by: str,
    overrides: Sequence[str],
    run_id: UUID,
    *,
    asked: dict[str, Any] | None = None,
) -> Run:
    """Open the run of an operator's command; `asked` is what else it was given, for the record."""
    with database.transaction() as tx:
        return open_asked(tx, job, requested_by, overrides, run_id, asked=asked)


def open_asked(
    tx: Transaction,
    job: str,
    requested_by: str,
    overrides: Sequence[str],
    run_id: UUID,
    *,
    request_id: UUID | None = None,
    policy: Any = None,
    asked: dict[str, Any] | None = None,
) -> Run:
    """The same in a transaction that does more, for the request of this id and its policy."""
    run = Run(
        run_id, job, None, requested_by, tuple(overrides), "running", clock(tx), None, asked=asked
    )
    return _open(tx, run, request_id, policy)


def _open(tx: Transaction, run: Run, request_id: UUID | None = None, policy: Any = None) -> Run:
    tx.do(
        "open_run",
        {
            "run_id": run.run_id,
            "job": run.job,
            "slot": run.slot,
            "requested_by": run.requested_by,
            "overrides": list(run.overrides),
            "request_id": request_id,
            "policy": None if policy is None else json.dumps(policy),
            "asked": None if run.asked is None else json.dumps(run.asked),
            "now": run.started_at,
        },
    )
    return run


def cut(
    database: Database, run: Run, scopes: Sequence[str] | None, scopes_per_part: int
) -> tuple[int, Run | None]:
    """Queue a run's parts and end the handing out; gives their number, and the run if it is over.

    `scopes` None: one part that knows no scopes. Without any part the run is over at once.
    """
    with database.transaction() as tx:
        count = _queued(tx, run, scopes, scopes_per_part, after=0)
        return count, _ended(tx, Part(run.run_id, 0, run.job, None), "succeeded")


def queue_parts(
    database: Database, run: Run, scopes: Sequence[str] | None, scopes_per_part: int, *, after: int
) -> int:
    """Queue more parts of a run, numbered on from the one named; gives how many."""
    with database.transaction() as tx:
        return _queued(tx, run, scopes, scopes_per_part, after)


def _queued(
    tx: Transaction, run: Run, scopes: Sequence[str] | None, scopes_per_part: int, after: int
) -> int:
    now = clock(tx)
    if scopes is None:
        return tx.do("add_whole_part", {"run_id": run.run_id, "now": now})
    parts = [after + 1 + index // scopes_per_part for index in range(len(scopes))]
    params = {"run_id": run.run_id, "scopes": list(scopes), "parts": parts, "now": now}
    return tx.do("add_parts", params)


def begin_part(database: Database, run: Run, number: int, scopes: Sequence[str] | None) -> Part:
    """Begin a part in the process that hands the parts out: nobody else ever has it."""
    with database.transaction() as tx:
        listed = None if scopes is None else list(scopes)
        params = {"run_id": run.run_id, "part": number, "scopes": listed, "now": clock(tx)}
        tx.do("begin_part", params)
    return Part(run.run_id, number, run.job, None if scopes is None else tuple(scopes))


def end_handing_out(database: Database, run: Run, error: str | None = None) -> Run | None:
    """End part 0, for good or with what went wrong; gives the run if it is over."""
    part = Part(run.run_id, 0, run.job, None)
    return finish_part(database, part, "succeeded" if error is None else "failed", error=error)


def start_part(
    database: Database, run_id: UUID, part: int, jobs: Collection[str] | None = None
) -> Part | None:
    """Begin a queued part; None: it was begun before, or there is no such part.

    `jobs`: the only ones whose parts are begun; another release's are left to it.
    """
    with database.transaction() as tx:
        params = {
            "run_id": run_id,
            "part": part,
            "jobs": None if jobs is None else list(jobs),
            "now": clock(tx),
        }
        row = tx.one("start_part", params)
    if row is None:
        return None
    scopes = row["scopes"]
    return Part(
        run_id,
        part,
        row["job"],
        None if scopes is None else tuple(scopes),
        tuple(row["overrides"]),
        row["request_id"],
        row["policy"],
    )


def finish_part(
    database: Database,
    part: Part,
    state: PartState,
    *,
    more: bool = False,
    error: str | None = None,
    failing: Mapping[str, str] | None = None,
) -> Run | None:
    """End a part; gives the run if that was its last open part.

    `failing`: what is wrong, by scope, where the part could not do all it should. Safe to repeat.
    """
    with database.transaction() as tx:
        return _ended(tx, part, state, more=more, error=error, failing=failing)


def _ended(
    tx: Transaction,
    part: Part,
    state: PartState,
    *,
    more: bool = False,
    error: str | None = None,
    failing: Mapping[str, str] | None = None,
) -> Run | None:
    tx.one("lock_run", {"run_id": part.run_id})
    now = clock(tx)
    ended = tx.do(
        "finish_part",
        {
            "run_id": part.run_id,
            "part": part.part,
            "state": state,
            "more": more,
            "error": error,
            "failing": json.dumps(failing or {}),
            "now": now,
        },
    )
    if not ended:
        tx.do("refresh_report", {"run_id": part.run_id})
    return _finished(tx, part.run_id, now)


def _finished(tx: Transaction, run_id: UUID, now: int) -> Run | None:
    row = tx.one("finish_run", {"run_id": run_id, "now": now})
    return None if row is None else _run(row)


def lose_parts(
    database: Database,
    job: str | None,
    unheard: timedelta,
    unfinished: timedelta,
    forgotten: timedelta = _FORGOTTEN,
) -> list[Run]:
    """Give up parts that never came back; gives the runs that ended by it.

    `unheard`: how long a tick's message may be under way; `unfinished`: how long a part may take;
    `forgotten`: how long a request's part may wait, whose message is sent again now and then.
    `job` None: of all runs that no tick opened.
    """
    with database.transaction() as tx:
        now = clock(tx)
        params: dict[str, Any] = {
            "job": job,
            "now": now,
            "queued_before": now - unheard // timedelta(milliseconds=1),
            "forgotten_before": now - forgotten // timedelta(milliseconds=1),
            "begun_before": now - unfinished // timedelta(milliseconds=1),
        }
        tx.do("lose_parts", params)
    with database.transaction(read_only=True) as tx:
        over = [row["run_id"] for row in tx.rows("runs_over", {"job": job})]
    ended: list[Run] = []
    for run_id in over:
        with database.transaction() as tx:
            tx.one("lock_run", {"run_id": run_id})
            run = _finished(tx, run_id, clock(tx))
        if run is not None:
            ended.append(run)
    return ended


def list_runs(database: Database, job: str | None, limit: int) -> list[Run]:
    """The newest runs, of one job or of all."""
    with database.transaction(read_only=True) as tx:
        params = {"job": job, "run_id": None, "limit": limit}
        return [_run(row) for row in tx.rows("list_runs", params)]


def find_run(database: Database, run_id: UUID) -> Run | None:
    """One run; None where it is not on record (any more)."""
    with database.transaction(read_only=True) as tx:
        row = tx.one("list_runs", {"job": None, "run_id": run_id, "limit": 1})
    return None if row is None else _run(row)
