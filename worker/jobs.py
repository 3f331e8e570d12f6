"""The jobs by name, behind one signature."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from config.server import read_process_environment
from store import memory_boundary
from tasks import (
    audit_memory,
    drain_harvest,
    flip_stale_running,
    housekeeping,
    reap,
    reconcile_parked,
    release_sessions,
)
from tasks.context import Context, Planned

Scopes = Sequence[str] | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one part of a run went; `error` None: well. `failing`: what is wrong, by scope."""

    more: bool = False
    error: str | None = None
    failing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Job:
    """What the frame knows of a job. `due` None: it knows no scopes; `preview` None: no dry run.

    `due_anywhere`: where not all that is due need be found at every tick, what finds all of it.
    `watch`: what each tick of the job begins with, whatever is due.
    """

    run: Callable[[Context, Scopes], Outcome]
    due: Callable[[Context], Iterator[list[str]]] | None = None
    preview: Callable[[Context, Scopes], list[Planned]] | None = None
    due_anywhere: Callable[[Context], Iterator[list[str]]] | None = None
    watch: Callable[[Context], None] | None = None


def _reap(ctx: Context, scopes: Scopes) -> Outcome:
    report = reap.run(ctx, scopes or ())
    return Outcome(more=report.more, failing=report.failing)


def _flip(ctx: Context, scopes: Scopes) -> Outcome:
    report = flip_stale_running.run(ctx, scopes or ())
    return Outcome(more=report.more, failing=report.failing)


def _reconcile(ctx: Context, scopes: Scopes) -> Outcome:
    report = reconcile_parked.run(ctx, scopes or ())
    return Outcome(more=report.more, failing=report.failing)


def _release(ctx: Context, scopes: Scopes) -> Outcome:
    return Outcome(more=release_sessions.run(ctx, scopes).more)


def _drain(ctx: Context, scopes: Scopes) -> Outcome:
    report = drain_harvest.run(ctx, scopes)
    return Outcome(more=report.more, failing=report.failing)


def _housekeeping(ctx: Context, scopes: Scopes) -> Outcome:  # noqa: ARG001 - it knows no scopes
    return Outcome(more=housekeeping.run(ctx).more)


def audit(ctx: Context, scopes: Scopes = None) -> Outcome:  # noqa: ARG001 - it knows no scopes
    """Audit the memory boundary of this process's environment and keep what was found."""
    report = audit_memory.run(read_process_environment, os.path.realpath)
    if report.error is None:
        memory_boundary.replace(ctx.database, report.warnings, ctx.stamp.now)
    return Outcome(error=report.error)


JOBS: Final[dict[str, Job]] = {
    "reap": Job(
        _reap,
        reap.due,
        lambda ctx, scopes: reap.preview(ctx, scopes or ()),
        due_anywhere=reap.due_anywhere,
    ),
    "flip_stale_running": Job(
        _flip,
        flip_stale_running.due,
        lambda ctx, scopes: flip_stale_running.preview(ctx, scopes or ()),
        watch=flip_stale_running.watch,
    ),
    "reconcile_parked": Job(
        _reconcile,
        reconcile_parked.due,
        lambda ctx, scopes: reconcile_parked.preview(ctx, scopes or ()),
        watch=reconcile_parked.watch,
    ),
    "release_sessions": Job(_release, preview=release_sessions.preview),
    "drain_harvest": Job(_drain, preview=drain_harvest.preview),
    "housekeeping": Job(_housekeeping),
    "audit_memory": Job(audit),
}
