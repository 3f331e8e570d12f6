"""Around every job: the claim of a tick, its parts, the record of each, and the error policy.

The broker only says "look": which slot is due, who has it and what it is to do stand in Postgres. A
message that is lost, late or delivered twice therefore changes nothing. This is the only place that
catches broadly.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
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
        context = process.context(Stamp(run.started_at, run.run_id))
        scopes = due_scopes(context, job)
        count, over = runs.cut(process.database, run, scopes, process.settings.scopes_per_part)
    except Exception as error:  # noqa: BLE001 - the frame's own error policy
        message = _sentence(error)
        log.error("tick_failed", extra={"job": job, "error": message})
        if run is not None:
            _record_failure(process, run, message)
        return
    if over is not None:
        log_run(over)
    for part in range(1, count + 1):
        yield run.run_id, part


def _give_up_lost(process: Process, job: str) -> None:
    period = process.entries[job].every
    unfinished = process.settings.job_budget + GRACE
    for run in runs.lose_parts(process.database, job, period, unfinished):
        log_run(run)


def work(process: Process, run_id: UUID, number: int) -> None:
    """Do one queued part, if nobody did. Never raises."""
    try:
        part = runs.start_part(process.database, run_id, number)
        if part is None:
            log.info("part_passed_over", extra={"run_id": str(run_id), "part": number})
            return
        outcome = _do(process, part, process.policy)
        run = _finish(process, part, outcome)
    except Exception as error:  # noqa: BLE001 - the frame's own error policy
        # The part stays open; a later tick gives it up as lost.
        log.error("part_failed", extra={"run_id": str(run_id), "error": _sentence(error)})
        return
    if run is not None:
        log_run(run)


def _do(process: Process, part: runs.Part, policy: Policy) -> Outcome:
    try:
        with process.database.transaction(read_only=True) as tx:
            now = runs.clock(tx)
        # WHY a batch range per part: (run, batch) names one transaction of the journal.
        stamp = Stamp(now, part.run_id, batch=part.part * 1_000_000, live=True)
        return JOBS[part.job].run(process.context(stamp, policy=policy), part.scopes)
    except Exception as error:  # noqa: BLE001 - the frame's own error policy
        return Outcome(error=_sentence(error))


def _finish(process: Process, part: runs.Part, outcome: Outcome) -> runs.Run | None:
    state: runs.PartState = "succeeded" if outcome.error is None else "failed"
    return runs.finish_part(process.database, part, state, more=outcome.more, error=outcome.error)


def by_hand(
    process: Process,
    job: str,
    scopes: Sequence[str] | None,
    *,
    policy: Policy,
    requested_by: str,
    overrides: Sequence[str] = (),
) -> runs.Run:
    """Run a job here and now, part after part, until it is done or the process is to stop.

    `scopes` None: wherever it has something to do. Raises StoreError where the run cannot be opened
    or closed; everything else is in its record.
    """
    run = runs.open_run(process.database, job, requested_by, overrides, uuid.uuid4())
    try:
        if scopes is None:
            scopes = due_scopes(process.context(Stamp(run.started_at), policy=policy), job)
        _work_through(process, run, _chunks(scopes, process.settings.scopes_per_part), policy)
    except StoreError as error:
        _record_failure(process, run, _sentence(error))
        raise
    over = runs.end_handing_out(process.database, run)
    if over is None:
        raise StoreError("the run was given up as lost while it was under way; see the history")
    log_run(over)
    return over


def _work_through(
    process: Process, run: runs.Run, chunks: Sequence[Sequence[str] | None], policy: Policy
) -> None:
    waiting = deque(chunks)
    number = 0
    while waiting:
        number += 1
        part = runs.begin_part(process.database, run, number, waiting[0])
        outcome = _do(process, part, policy)
        # WHY the same scopes again: a budget ends a part so that a worker can take turns; by hand
        # nobody else waits.
        if not outcome.more:
            waiting.popleft()
        stopped = bool(waiting) and process.stopping.is_set()
        _finish(process, part, Outcome(more=stopped, error=outcome.error))
        if stopped:
            return


def _chunks(scopes: Sequence[str] | None, size: int) -> list[Sequence[str] | None]:
    if scopes is None:
        return [None]
    return [scopes[start : start + size] for start in range(0, len(scopes), size)]


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
        over = runs.end_handing_out(process.database, run, error)
    except StoreError as trouble:
        log.error("run_unrecorded", extra={"job": run.job, "error": _sentence(trouble)})
        return
    if over is not None:
        log_run(over)


def _sentence(error: Exception) -> str:
    """One line for a person. An error of ours is one already; any other is a defect of ours."""
    if isinstance(error, StoreError | ConfigError):
        return str(error)
    log.debug("unexpected", exc_info=error)
    return f"an unexpected {type(error).__name__}; log level debug shows where"
