"""Around every job: the claim of a tick, its parts, the record of each, and the error policy.

The broker only says "look": which slot is due, who has it and what it is to do stand in Postgres. A
message that is lost, late or delivered twice therefore changes nothing. This is the only place that
catches broadly.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Final
from uuid import UUID

from config.errors import ConfigError
from config.policy import Policy
from config.windows import Windows
from store import requests, runs
from store.batches import Stamp
from store.errors import StoreError, StoreUnavailable
from tasks.context import Context
from worker.asked import GUARDS, policy_for, problem_of
from worker.context import GRACE, Process, deadline
from worker.jobs import JOBS, Outcome
from worker.logs import log_run
from worker.recorded import recorded
from worker.schedule import open_for

log = logging.getLogger("sema_maintenance.frame")
NO_WINDOWS: Final[Mapping[str, Windows]] = MappingProxyType({})


def tick(process: Process, job: str) -> Iterator[tuple[UUID, int]]:
    """Claim the job's present slot, find what is due, and yield the parts that it was cut into.

    What is found first is handed out first: the rest need not be found for that. Nothing to yield:
    somebody else has the slot, or nothing is due. Never raises: what goes wrong is on record, or in
    the log where the database is out of reach.
    """
    run, count = None, 0
    try:
        _give_up_lost(process, job)
        run = runs.claim_tick(process.database, job, process.entries[job].every, uuid.uuid4())
        if run is None:
            return
        if run.ahead_ms:
            log.warning("slot_set_back", extra={"job": job, "ahead_seconds": run.ahead_ms // 1000})
        context = process.context(Stamp(run.started_at, run.run_id))
        if (watch := JOBS[job].watch) is not None:
            watch(context)
        if not open_for(process.policy.windows, job, run.started_at):
            log.debug("outside_windows", extra={"job": job})
            end_handing_out(process, run)
            return
        find = JOBS[job].due
        for scopes in [None] if find is None else find(context):
            size = process.settings.scopes_per_part
            for _ in range(runs.queue_parts(process.database, run, scopes, size, after=count)):
                count += 1
                yield run.run_id, count
    except Exception as error:  # noqa: BLE001 - the frame's own error policy
        message = _sentence(error)
        log.error("tick_failed", extra={"job": job, "error": message})
        if run is not None:
            end_handing_out(process, run, message)
    except GeneratorExit:
        # The parts cannot be sent: they are lost, and the next tick finds their work again.
        if run is not None:
            end_handing_out(process, run)
        raise
    else:
        end_handing_out(process, run)


def _give_up_lost(process: Process, job: str) -> None:
    period = process.entries[job].every
    unfinished = process.settings.job_budget + GRACE
    forgotten = process.settings.request_expires
    for run in runs.lose_parts(process.database, job, period, unfinished, forgotten):
        log_run(run)


def take(process: Process, request_id: UUID) -> Iterator[tuple[UUID, int]]:
    """Take an operator's request, find what is due, and yield the parts that it was cut into.

    Nothing to yield: somebody else has it, it was refused, or nothing is due. Never raises, as a
    tick does not.
    """
    run = None
    who = {"request_id": str(request_id)}
    try:
        expires = process.settings.request_expires
        taken = requests.take(
            process.database,
            request_id,
            uuid.uuid4(),
            lambda asked, now: problem_of(asked, now, process.policy, expires),
        )
        if taken is None:
            log.info("request_passed_over", extra=who)
            return
        run, asked = taken.run, taken.request
        if run is None:
            log.warning("request_refused", extra={**who, "problem": taken.error})
            return
        log.info("request_taken", extra={**who, **_told(asked, run)})
        scopes = _asked_scopes(process, asked, run)
        count, over = runs.cut(process.database, run, scopes, process.settings.scopes_per_part)
    except Exception as error:  # noqa: BLE001 - the frame's own error policy
        message = _sentence(error)
        log.error("request_failed", extra={**who, "error": message})
        if run is not None:
            end_handing_out(process, run, message)
        elif not isinstance(error, StoreUnavailable):
            _refuse(process, request_id, message)
        return
    if over is not None:
        log_run(over)
    for part in range(1, count + 1):
        yield run.run_id, part


def _refuse(process: Process, request_id: UUID, message: str) -> None:
    """Refuse a request that cannot be judged: the poll would meet it again and again."""
    try:
        requests.refuse(process.database, request_id, message)
    except StoreError as error:
        log.error("request_failed", extra={"request_id": str(request_id), "error": str(error)})


def _asked_scopes(process: Process, asked: requests.Request, run: runs.Run) -> Sequence[str] | None:
    if asked.scopes is not None:
        return sorted({scope for scope in asked.scopes if scope is not None})
    policy = policy_for(run.job, asked.policy, run.overrides, process.policy)
    stamp = Stamp(run.started_at, run.run_id)
    return due_scopes(process.context(stamp, policy=policy, lifted=run.overrides), run.job)


def _told(asked: requests.Request, run: runs.Run) -> dict[str, object]:
    """What a request asks for, for the log: how many scopes, for their names may be many."""
    return {
        "run_id": str(run.run_id),
        "job": run.job,
        "requested_by": run.requested_by,
        "scopes": "all" if asked.scopes is None else len(asked.scopes),
        "policy": "file" if asked.policy is None else asked.policy,
        "overrides": list(run.overrides),
    }


def poll(process: Process, unheard: timedelta) -> Iterator[tuple[UUID, int]]:
    """Go on with what operators asked for and no message brought; yields the parts to be sent.

    `unheard`: after how long the message of a part must be gone. Never raises.
    """
    try:
        database = process.database
        unfinished = process.settings.job_budget + GRACE
        forgotten = process.settings.request_expires
        for run in runs.lose_parts(database, None, forgotten, unfinished, forgotten):
            log_run(run)
        # WHY longer: a message that expires in this moment may still be read.
        parts = requests.send_again(database, unheard + _SLACK, _SENT_AT_ONCE, [*JOBS])
        waiting = requests.waiting(
            database,
            _UNNOTICED,
            _TAKEN_AT_ONCE,
            jobs=[*JOBS],
            guards=(*GUARDS, ""),
            expires=process.settings.request_expires,
        )
    except Exception as error:  # noqa: BLE001 - the frame's own error policy
        log.error("poll_failed", extra={"error": _sentence(error)})
        return
    yield from parts
    for request_id in waiting:
        yield from take(process, request_id)


# How long a request waits for its message before a poll takes it, and what one poll does at most.
_UNNOTICED = timedelta(seconds=5)
_SLACK = timedelta(seconds=10)
_TAKEN_AT_ONCE = 20
_SENT_AT_ONCE = 1000


def work(process: Process, run_id: UUID, number: int) -> list[tuple[UUID, int]]:
    """Do one queued part, if nobody did; gives the parts to be sent then. Never raises.

    Such is what is left of an operator's part whose turn was over first: unlike a tick's, nothing
    else would make up for it.
    """
    turn_is_over = deadline(process.settings.job_budget, process.stopping)
    stopping = process.stopping.is_set
    try:
        # WHY these jobs: a part of one that only a newer release knows is left to it.
        part = runs.start_part(process.database, run_id, number, [*JOBS])
        if part is None:
            log.info("part_passed_over", extra={"run_id": str(run_id), "part": number})
            _tell_of_strange_job(runs.find_run(process.database, run_id))
            return []
        outcome = _do_queued(process, part)
        # WHY only at its time: one that ends early by itself would come again and again; and so
        # would one whose whole turn goes by with what it passed over before.
        going_on = outcome.more and (outcome.got_on or process.stopping.is_set())
        if part.request_id and going_on and outcome.error is None and turn_is_over():
            rest = recorded(lambda: requests.carry_on(process.database, part), stopping)
            return [] if rest is None else [(run_id, rest)]
        run = recorded(lambda: finish(process, part, outcome), stopping)
    except Exception as error:  # noqa: BLE001 - the frame's own error policy
        # The part stays open; a later tick gives it up as lost.
        log.error("part_failed", extra={"run_id": str(run_id), "error": _sentence(error)})
        return []
    if run is not None:
        log_run(run)
    return []


def _tell_of_strange_job(run: runs.Run | None) -> None:
    """Say in the log that a part is left to a newer release, which may be none any more."""
    if run is not None and run.state == "running" and run.job not in JOBS:
        _say_left(run.run_id, run.job)


@lru_cache(maxsize=1000)  # WHY: a newer release beside this one sends the message again and again.
def _say_left(run_id: UUID, job: str) -> None:
    told = {"run_id": str(run_id), "job": job}
    log.warning("part_left_to_newer_release", extra=told)


def _do_queued(process: Process, part: runs.Part) -> Outcome:
    try:
        policy = policy_for(part.job, part.policy, part.overrides, process.policy)
    except ConfigError as error:
        return Outcome(error=_sentence(error))
    windows = process.policy.windows if part.request_id is None else {}
    return do(process, part, policy, part.overrides, windows)


def do(
    process: Process,
    part: runs.Part,
    policy: Policy,
    lifted: Sequence[str],
    windows: Mapping[str, Windows],
) -> Outcome:
    """Do one part of a job. Never raises."""

    def run(context: Context) -> Outcome:
        return JOBS[part.job].run(context, part.scopes)

    return do_part(process, part, policy, lifted, run, windows)


def do_part(
    process: Process,
    part: runs.Part,
    policy: Policy,
    lifted: Sequence[str],
    act: Callable[[Context], Outcome],
    windows: Mapping[str, Windows] = NO_WINDOWS,
) -> Outcome:
    """Do one part, whatever that is. Never raises.

    `windows`: none for what a person asks for, at whatever time.
    """
    try:
        with process.database.transaction(read_only=True) as tx:
            now = runs.clock(tx)
        left = open_for(windows, part.job, now)
        if not left:
            return Outcome(more=True)
        # WHY a batch range per part: (run, batch) names one transaction of the journal.
        stamp = Stamp(now, part.run_id, batch=part.part * 1_000_000, live=True)
        context = process.context(stamp, policy=policy, lifted=lifted, open_for=left)
        if process.standbys is not None:
            process.standbys.wait(context.stop)
            if context.stop():
                # WHY: who waited has met nothing yet, and is not through with anything.
                return Outcome(more=True, got_on=True)
        outcome = act(context)
        told = {"run_id": str(part.run_id), "part": part.part, "job": part.job}
        log.debug("part_done", extra={**told, "did": dict(outcome.did), "more": outcome.more})
        return outcome
    except Exception as error:  # noqa: BLE001 - the frame's own error policy
        return Outcome(error=_sentence(error))


def finish(process: Process, part: runs.Part, outcome: Outcome) -> runs.Run | None:
    """Put on record how a part went; gives the run if it is over. Raises StoreError."""
    state: runs.PartState = "succeeded" if outcome.error is None else "failed"
    return runs.finish_part(
        process.database,
        part,
        state,
        more=outcome.more,
        error=outcome.error,
        failing=outcome.failing,
    )


def due_scopes(context: Context, job: str) -> list[str] | None:
    """The scopes in which the job has something to do; None where it knows none."""
    find = JOBS[job].due_anywhere or JOBS[job].due
    if find is None:
        return None
    return [scope for found in find(context) for scope in found]


def end_handing_out(process: Process, run: runs.Run, error: str | None = None) -> None:
    """End part 0, with what went wrong if anything did; never raises."""
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
