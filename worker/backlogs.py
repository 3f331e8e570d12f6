"""How much each job has before it, and how long that takes at the pace it has had lately."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from store.errors import StatementFailed, StoreError, StoreUnavailable, TimedOut
from store.overview import Pace, paces
from store.translation import is_forbidden
from worker import manual
from worker.context import Process
from worker.readings import PREVIEWED_JOBS, backlog

LATELY: Final = timedelta(hours=1)
# WHY a limit: of many millions of rows nobody waits for the exact number.
COUNTED_WITHIN: Final = timedelta(seconds=3)
_JOBS: Final = (*PREVIEWED_JOBS, "release_sessions", "drain_harvest")


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a job has before it; `rows` None: more than could be counted in time, or a `problem`.

    `done_lately` rows took `lately_ms`; `left_ms` is how long the rest takes at that pace, where
    there is one.
    """

    rows: int | None
    done_lately: int
    lately_ms: int
    left_ms: int | None
    problem: str | None = None


def ahead(rows: int | None, pace: Pace | None) -> Ahead:
    """How long so many rows take at this pace."""
    if pace is None:
        return Ahead(rows, 0, 0, 0 if rows == 0 else None)
    left_ms = None
    if rows is not None and (pace.rows or not rows):
        left_ms = rows * pace.took_ms // max(1, pace.rows)
    return Ahead(rows, pace.rows, pace.took_ms, left_ms)


def backlogs(process: Process) -> dict[str, Ahead]:
    """What each job has before it, paused or not. Raises StoreUnavailable."""
    lately = paces(process.database, LATELY)
    settings = process.settings.model_copy(update={"statement_timeout": COUNTED_WITHIN})
    with closing(Process(settings, process.policy)) as brief:
        return {job: _ahead(brief, job, lately.get(job)) for job in _JOBS}


def _problem(error: StoreError) -> str:
    """Why nothing can be said. WHY not all of it: what this role need not read is no fault."""
    return "not this role's to read" if is_forbidden(error) else str(error)


def _ahead(process: Process, job: str, pace: Pace | None) -> Ahead:
    try:
        found = backlog(manual.dry_run(process, job, None, process.policy, though_paused=True))
    except (TimedOut, StatementFailed):
        return ahead(None, pace)
    except StoreUnavailable:
        raise
    except StoreError as error:
        return replace(ahead(None, pace), problem=_problem(error))
    return ahead(found.rows, pace)
