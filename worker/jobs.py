"""The jobs by name, behind one signature."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Protocol, cast

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


class _Report(Protocol):
    """What the reports of the jobs have in common, beside counts."""

    @property
    def more(self) -> bool:
        """The budget ended before the work did."""

    @property
    def failing(self) -> Mapping[str, str]:
        """What is wrong, by scope."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one part of a run went; `error` None: well. `failing`: what is wrong, by scope.

    `did` counts what the part did and passed over, by the names of the job's report; `got_on`: some
    of it is new in the run, so that another turn comes further.
    """

    more: bool = False
    error: str | None = None
    failing: Mapping[str, str] = field(default_factory=dict)
    did: Mapping[str, int] = field(default_factory=dict)
    got_on: bool = False


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


def _counts(report: object) -> dict[str, int]:
    """The counts of a job's report by name."""
    found = {f.name: getattr(report, f.name) for f in fields(cast("Any", report))}
    return {name: n for name, n in found.items() if type(n) is int}


def _outcome(report: _Report, *, no_news: Collection[str] = ()) -> Outcome:
    """How a part went, by its job's report. `no_news`: what each turn counts anew."""
    did = _counts(report)
    # WHY not lost races: each turn may lose the same one. What is skipped counts once a run.
    news = [n for name, n in did.items() if name not in {"lost_race", *no_news}]
    return Outcome(report.more, None, report.failing, did, any(news))


def _reap(ctx: Context, scopes: Scopes) -> Outcome:
    return _outcome(reap.run(ctx, scopes or ()))


def _flip(ctx: Context, scopes: Scopes) -> Outcome:
    return _outcome(flip_stale_running.run(ctx, scopes or ()))


def _reconcile(ctx: Context, scopes: Scopes) -> Outcome:
    return _outcome(reconcile_parked.run(ctx, scopes or ()))


def _release(ctx: Context, scopes: Scopes) -> Outcome:
    return _outcome(release_sessions.run(ctx, scopes))


def _drain(ctx: Context, scopes: Scopes) -> Outcome:
    return _outcome(drain_harvest.run(ctx, scopes), no_news=["skipped"])


def _housekeeping(ctx: Context, scopes: Scopes) -> Outcome:  # noqa: ARG001 - it knows no scopes
    report = housekeeping.run(ctx)
    did = _counts(report)
    return Outcome(report.more, report.error, did=did, got_on=any(did.values()))


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
