"""The jobs by name, behind one signature."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from config.server import read_process_environment
from store import memory_boundary
from tasks import audit_memory, flip_stale_running, reap, reconcile_parked, release_sessions
from tasks.context import Context, Planned

Scopes = Sequence[str] | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one part of a run went; `error` None: well."""

    more: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """What the frame knows of a job. `due` None: it knows no scopes; `preview` None: no dry run."""

    run: Callable[[Context, Scopes], Outcome]
    due: Callable[[Context, Sequence[str]], list[str]] | None = None
    preview: Callable[[Context, Scopes], list[Planned]] | None = None


def _reap(ctx: Context, scopes: Scopes) -> Outcome:
    return Outcome(more=reap.run(ctx, scopes or ()).more)


def _flip(ctx: Context, scopes: Scopes) -> Outcome:
    return Outcome(more=flip_stale_running.run(ctx, scopes or ()).more)


def _reconcile(ctx: Context, scopes: Scopes) -> Outcome:
    return Outcome(more=reconcile_parked.run(ctx, scopes or ()).more)


def _release(ctx: Context, scopes: Scopes) -> Outcome:
    return Outcome(more=release_sessions.run(ctx, scopes).more)


def audit(ctx: Context, scopes: Scopes = None) -> Outcome:  # noqa: ARG001 - it knows no scopes
    """Audit the memory boundary of this process's environment and keep what was found."""
    report = audit_memory.run(read_process_environment, os.path.realpath)
    if report.error is None:
        memory_boundary.replace(ctx.database, report.warnings, ctx.stamp.now)
    return Outcome(error=report.error)


JOBS: Final[dict[str, Job]] = {
    "reap": Job(_reap, reap.due, lambda ctx, scopes: reap.preview(ctx, scopes or ())),
    "flip_stale_running": Job(
        _flip,
        flip_stale_running.due,
        lambda ctx, scopes: flip_stale_running.preview(ctx, scopes or ()),
    ),
    "reconcile_parked": Job(
        _reconcile,
        reconcile_parked.due,
        lambda ctx, scopes: reconcile_parked.preview(ctx, scopes or ()),
    ),
    "release_sessions": Job(_release, preview=release_sessions.preview),
    "audit_memory": Job(audit),
}
