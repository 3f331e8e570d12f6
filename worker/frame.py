"""Around every job: the claim of a tick, its parts, the record of each, and the error policy.

The broker only says "look": which slot is due, who has it and what it is to do stand in Postgres. A
message that is lost, late or delivered twice therefore changes nothing. This is the only place that
catches broadly.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from uuid import UUID

from config.errors import ConfigError
from config.policy import Policy
from store import runs
from store.agents import PostgresAgentStore
from store.batches import Stamp
from store.errors import StoreError
from tasks.context import Context, Planned
from worker.context import GRACE, Process
from worker.jobs import JOBS, Outcome
from worker.logs import log_run

log = logging.getLogger("sema_maintenance.frame")


def tick(process: Process, job: str) -> Iterator[tuple[UUID, int]]:
    """Claim the job's present slot, find what is due, and yield the parts that it was cut into.

    Nothing to yield: somebody else has the slot, or nothing is due. Never raises: what goes wrong
    is on record, or in the log where the database is out of reach.
    """
    run = None
    try:
        _give_up_lost(process, job)
        run = runs.claim_tick(process.database, job, process.entries[job].every, uuid.uuid4())
        if run is None:
            return
        count = _cut(process, run, _due(process, run))
    except Exception as error:
        message = _sentence(error)
        log.error("tick_failed", extra={"job": job, "error": message})
        if run is not None:
            _record_failure(process, run, message)
        return
    for part in range(1, count + 1):
        yield run.run_id, part


def _give_up_lost(process: Process, job: str) -> None:
    period = process.entries[job].every
    unfinished = process.settings.job_budget + GRACE
    for run in runs.lose_parts(process.database, job, period, unfinished):
        log_run(run)


def _due(process: Process, run: runs.Run) -> Sequence[str] | None:
    find = JOBS[run.job].due
    if find is None:
        return None
    context = process.context(Stamp(run.started_at, run.run_id))
    return find(context, PostgresAgentStore(process.database).list_scopes())


def _cut(process: Process, run: runs.Run, scopes: Sequence[str] | None) -> int:
    """Cut the run into parts; one without any is over at once, and a success."""
    count = runs.add_parts(process.database, run, scopes, process.settings.scopes_per_part)
    if not count:
        finished = runs.finish_run(process.database, run.run_id)
        if finished is not None:
            log_run(finished)
    return count


def work(
    process: Process, run_id: UUID, number: int, policy: Policy | None = None
) -> runs.Run | None:
    """Do one part, if nobody did; gives the run if that ended it. Never raises."""
    try:
        part = runs.start_part(process.database, run_id, number)
        if part is None:
            return None
        outcome = _do(process, part, policy)
        run = runs.finish_part(
            process.database,
            part,
            "succeeded" if outcome.error is None else "failed",
            more=outcome.more,
            error=outcome.error,
        )
    except Exception as error:
        # The part stays open; the next tick gives it up as lost.
        log.error("part_failed", extra={"run_id": str(run_id), "error": _sentence(error)})
        return None
    if run is not None:
        log_run(run)
    return run


def _do(process: Process, part: runs.Part, policy: Policy | None) -> Outcome:
    try:
        with process.database.transaction(read_only=True) as tx:
            now = runs.clock(tx)
        # WHY a batch range per part: (run, batch) names one transaction of the journal.
        stamp = Stamp(now, part.run_id, batch=part.part * 1_000_000)
        return JOBS[part.job].run(process.context(stamp, policy=policy), part.scopes)
    except Exception as error:
        return Outcome(error=_sentence(error))


def by_hand(
    process: Process,
    job: str,
    scopes: Sequence[str] | None,
    *,
    policy: Policy,
    requested_by: str,
    overrides: Sequence[str] = (),
) -> runs.Run:
    """Run a job here and now, part after part; `scopes` None: wherever it has something to do.

    Raises StoreError where the run cannot even be opened or closed; everything else is in its
    record.
    """
    run = runs.open_run(process.database, job, requested_by, overrides, uuid.uuid4())
    try:
        if scopes is None and JOBS[job].due is not None:
            context = process.context(Stamp(run.started_at, run.run_id), policy=policy)
            scopes = due_scopes(context, job)
        count = runs.add_parts(process.database, run, scopes, process.settings.scopes_per_part)
    except StoreError as error:
        _record_failure(process, run, _sentence(error))
        raise
    finished = None if count else runs.finish_run(process.database, run.run_id)
    for part in range(1, count + 1):
        finished = work(process, run.run_id, part, policy) or finished
    if finished is None:
        raise StoreError("the run could not be brought to its end; see the log")
    return finished


def due_scopes(context: Context, job: str) -> list[str] | None:
    """The scopes in which the job has something to do; None where it knows none."""
    find = JOBS[job].due
    if find is None:
        return None
    return find(context, PostgresAgentStore(context.database).list_scopes())


def dry_run(
    process: Process, job: str, scopes: Sequence[str] | None, policy: Policy
) -> list[Planned]:
    """What the job would do at this instant, without a lock or a write. Raises StoreError."""
    preview = JOBS[job].preview
    if preview is None:
        raise StoreError(f"{job} has no dry run")
    with process.database.transaction(read_only=True) as tx:
        now = runs.clock(tx)
    context = process.context(Stamp(now), policy=policy)
    if scopes is None and JOBS[job].due is not None:
        scopes = PostgresAgentStore(process.database).list_scopes()
    return preview(context, scopes)


def _record_failure(process: Process, run: runs.Run, error: str) -> None:
    try:
        runs.add_parts(process.database, run, None, 1)
        part = runs.Part(run.run_id, 1, run.job, None)
        finished = runs.finish_part(process.database, part, "failed", error=error)
    except StoreError as trouble:
        log.error("run_unrecorded", extra={"job": run.job, "error": _sentence(trouble)})
        return
    if finished is not None:
        log_run(finished)


def _sentence(error: Exception) -> str:
    """One line for a person. An error of ours is one already; any other is a defect of ours."""
    if isinstance(error, StoreError | ConfigError):
        return str(error)
    log.debug("unexpected", exc_info=error)
    return f"an unexpected {type(error).__name__}; log level debug shows where"
