"""Runs here and now, part after part, as a person asks for them; and what they would do."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from config.errors import ConfigError
from config.policy import Policy
from store import runs
from store.agents import PostgresAgentStore
from store.batches import Stamp
from store.errors import StoreError
from store.pauses import NOT_PAUSED, paused_among
from tasks.context import Planned
from tasks.paused import as_paused
from worker import frame
from worker.context import Process
from worker.jobs import JOBS
from worker.logs import log_run


def by_hand(
    process: Process,
    job: str,
    scopes: Sequence[str] | None,
    *,
    policy: Policy,
    requested_by: str,
    overrides: Sequence[str] = (),
    asked: dict[str, Any] | None = None,
) -> runs.Run:
    """Run a job here and now, part after part, until it is done or the process is to stop.

    `scopes` None: wherever it has something to do. `asked`: what else is to be on record of it.
    Raises StoreError where the run cannot be opened or closed; everything else is in its record.
    """

    def work(run: runs.Run) -> None:
        where = scopes
        if where is None:
            context = process.context(Stamp(run.started_at), policy=policy, lifted=overrides)
            where = frame.due_scopes(context, job)
        _work_through(process, run, _chunks(where, process.settings.scopes_per_part), policy)

    return on_record(
        process, job, work, requested_by=requested_by, overrides=overrides, asked=asked
    )


def on_record(
    process: Process,
    job: str,
    work: Callable[[runs.Run], None],
    *,
    requested_by: str,
    overrides: Sequence[str],
    asked: dict[str, Any] | None,
) -> runs.Run:
    """Open a run, work on it, and close it; gives it as it ended.

    Raises StoreError where it cannot be opened or closed, and whatever sentence `work` ends with.
    """
    run = runs.open_run(process.database, job, requested_by, overrides, uuid.uuid4(), asked=asked)
    try:
        work(run)
    except (StoreError, ConfigError) as error:
        frame.end_handing_out(process, run, str(error))
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
        outcome = frame.do(process, part, policy, run.overrides, frame.NO_WINDOWS)
        # WHY the same scopes again: a budget ends a part so that a worker can take turns; by hand
        # nobody else waits. WHY not for ever: where a whole turn goes by with what was passed over
        # before, the next one would come no further.
        going_on = outcome.more and outcome.got_on
        if not going_on:
            waiting.popleft()
        stopped = bool(waiting) and process.stopping.is_set()
        frame.finish(
            process, part, replace(outcome, more=stopped or (outcome.more and not going_on))
        )
        if stopped:
            return


def _chunks(scopes: Sequence[str] | None, size: int) -> list[Sequence[str] | None]:
    if scopes is None:
        return [None]
    return [scopes[start : start + size] for start in range(0, len(scopes), size)]


def dry_run(
    process: Process,
    job: str,
    scopes: Sequence[str] | None,
    policy: Policy,
    lifted: Sequence[str] = (),
    *,
    though_paused: bool = False,
) -> list[Planned]:
    """What the job would do at this instant, without a lock or a write. Raises StoreError.

    `though_paused`: as if nobody had paused it.
    """
    preview = JOBS[job].preview
    if preview is None:
        raise StoreError(f"{job} has no dry run")
    with process.database.transaction(read_only=True) as tx:
        now = runs.clock(tx)
        paused = NOT_PAUSED if though_paused else paused_among(tx, job, scopes)
    context = process.context(Stamp(now), policy=policy, lifted=lifted)
    if scopes is None and JOBS[job].due is not None:
        scopes = PostgresAgentStore(process.database).list_scopes()
    return as_paused(preview(context, scopes), paused)
