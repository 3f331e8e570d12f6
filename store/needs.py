"""What each command, each job and each process asks of the database: tables and privileges.

This is the whole list: a role that is granted what stands here for what it runs can run it, and
one that lacks any of it is refused by `preflight` before anything is changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from store.release_sessions import Backend

_PRIVILEGES: Final = ("SELECT", "INSERT", "UPDATE", "DELETE")


@dataclass(frozen=True, slots=True)
class Needs:
    """What a command does to the ledger's tables, and to the worker's own.

    Each is a table and its privileges, separated by spaces. `writes`: anything is to be changed.
    `versioned`: it is asked which migrations were applied, which takes SELECT on their table.
    """

    ledger: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    writes: bool = True
    versioned: bool = True


def together(*needs: Needs) -> Needs:
    """All of them at once, each table named once."""
    return Needs(
        _merged(each for need in needs for each in need.ledger),
        _merged(each for need in needs for each in need.own),
        writes=any(need.writes for need in needs),
        versioned=any(need.versioned for need in needs),
    )


def reading(*ledger: str, own: Iterable[str] = ()) -> Needs:
    """What a command needs that only looks at these tables."""
    return Needs(
        tuple(f"{table} SELECT" for table in ledger),
        tuple(f"{table} SELECT" for table in own),
        writes=False,
    )


def _merged(tables: Iterable[str]) -> tuple[str, ...]:
    merged: dict[str, set[str]] = {}
    for each in tables:
        table, *privileges = each.split()
        merged.setdefault(table, set()).update(privileges)
    return tuple(
        " ".join([table, *(each for each in _PRIVILEGES if each in held)])
        for table, held in merged.items()
    )


# The record of a run, its parts, what they did and what failed.
_RECORD: Final = Needs(
    (),
    (
        "runs SELECT INSERT UPDATE",
        "run_parts SELECT INSERT UPDATE",
        "journal SELECT INSERT",
        "failing_scopes SELECT INSERT UPDATE DELETE",
    ),
)
# WHY UPDATE where rows are only locked: Postgres asks for it.
_JOBS: Final[Mapping[str, Needs]] = {
    "reap": Needs(
        ("background_agents SELECT UPDATE DELETE",),
        (
            "session_releases INSERT",
            "sightings SELECT",
            "holds SELECT",
            "breakers SELECT INSERT DELETE",
            "scope_next_due SELECT",
        ),
    ),
    "flip_stale_running": Needs(
        ("background_agents SELECT UPDATE", "checkpoints SELECT UPDATE"),
        (
            "sightings SELECT INSERT UPDATE",
            "breakers SELECT INSERT UPDATE DELETE",
            "watches SELECT",
            "schedule SELECT",
        ),
    ),
    "reconcile_parked": Needs(
        ("background_agents SELECT UPDATE", "checkpoints SELECT UPDATE"),
        ("sightings SELECT INSERT UPDATE", "breakers SELECT INSERT DELETE", "schedule SELECT"),
    ),
    "drain_harvest": Needs(
        (), ("harvest_rejections SELECT UPDATE DELETE", "harvest_codes SELECT INSERT")
    ),
    "housekeeping": Needs(
        ("background_agents SELECT",),
        (
            "runs SELECT UPDATE DELETE",
            "journal SELECT UPDATE DELETE",
            "journal_totals SELECT INSERT UPDATE",
            "requests SELECT UPDATE DELETE",
            "sightings SELECT UPDATE DELETE",
            "holds SELECT UPDATE DELETE",
            "actions SELECT UPDATE DELETE",
            "session_releases SELECT UPDATE DELETE",
        ),
    ),
    "audit_memory": Needs((), ("memory_boundary SELECT INSERT UPDATE DELETE",)),
}
_OUTBOX: Final = ("session_releases SELECT UPDATE DELETE",)
_RELEASE: Final[Mapping[Backend, Needs]] = {
    "postgres": Needs(
        ("background_agents SELECT", "agent_sessions SELECT UPDATE DELETE"),
        (*_OUTBOX, "holds SELECT"),
    ),
    "http": Needs(
        ("background_agents SELECT", "agent_sessions SELECT"), (*_OUTBOX, "holds SELECT")
    ),
    "none": Needs((), _OUTBOX),
}
_PREVIEWS: Final[Mapping[str, Needs]] = {
    "reap": reading("background_agents", own=("sightings", "breakers", "holds")),
    "flip_stale_running": reading(
        "background_agents", "checkpoints", own=("sightings", "breakers", "watches", "schedule")
    ),
    "reconcile_parked": reading("background_agents", "checkpoints", own=("sightings", "schedule")),
    "drain_harvest": reading(own=("harvest_rejections", "harvest_codes")),
}
_RELEASE_PREVIEWS: Final[Mapping[Backend, Needs]] = {
    "postgres": reading("background_agents", "agent_sessions", own=("session_releases", "holds")),
    "http": reading("background_agents", "agent_sessions", own=("session_releases", "holds")),
    "none": reading(own=("session_releases",)),
}
# Before every batch it is asked what a person has paused; the audit has no batches.
_PAUSES: Final = reading(own=("pauses",))
# A plan is for one ledger alone.
_IDENTITY: Final = reading(own=("identity",))
# Beyond what its parts do: the slot that is claimed, and what is noted at each tick.
_TICK: Final = Needs((), ("schedule SELECT INSERT UPDATE",))
_TICKS: Final[Mapping[str, Needs]] = {
    "reap": Needs(
        (), ("scope_scans SELECT INSERT UPDATE", "scope_next_due SELECT INSERT UPDATE DELETE")
    ),
    "flip_stale_running": Needs((), ("watches SELECT INSERT UPDATE",)),
}

# WHY no version: whoever only asks need not be able to read anything.
ENQUEUE: Final = Needs((), ("requests INSERT",), versioned=False)
IMPORT: Final = Needs(
    (
        "background_agents SELECT INSERT",
        "checkpoints SELECT INSERT",
        "agent_sessions SELECT INSERT",
    ),
    ("scope_scans SELECT UPDATE",),
)
REARM: Final = together(
    _RECORD, Needs(("agent_sessions SELECT",), ("session_releases SELECT UPDATE",))
)
RESTORABLE: Final = reading(own=("session_releases",))
ERASE: Final = Needs(
    (),
    (
        "session_releases SELECT UPDATE DELETE",
        "holds SELECT",
        "actions INSERT",
        "journal INSERT",
    ),
)
HOLDS: Final = reading(own=("holds",))
# WHY the outbox: transcripts that were claimed before are waited for.
PLACE_HOLD: Final = Needs(
    ("background_agents SELECT",),
    ("holds SELECT INSERT", "actions INSERT", "session_releases SELECT"),
)
RELEASE_HOLD: Final = Needs((), ("holds SELECT UPDATE", "actions INSERT"))
MIGRATE: Final = Needs()
RELEASES: Final = reading(own=("session_releases",))
# WHY the outbox: transcripts that were claimed before are waited for.
PAUSE: Final = Needs(
    ("background_agents SELECT",),
    ("pauses SELECT INSERT", "actions INSERT", "session_releases SELECT"),
)
RESUME: Final = Needs((), ("pauses SELECT DELETE", "actions INSERT"))
EXPLAIN: Final = reading(
    "background_agents",
    "checkpoints",
    "agent_sessions",
    own=(
        *("sightings", "breakers", "holds", "watches", "schedule", "pauses", "failing_scopes"),
        *("session_releases", "journal", "actions"),
    ),
)
HISTORY: Final = reading(own=("runs", "run_parts", "requests"))
ACTIONS: Final = reading(own=("actions",))
STATUS: Final = reading(
    "background_agents",
    own=(
        *("schedule", "runs", "run_parts", "session_releases", "memory_boundary", "pauses"),
        *("breakers", "holds", "failing_scopes"),
    ),
)

# WHY it is asked for nowhere: what is missing is a finding, and leaves the others to be made.
DOCTOR: Final = reading(
    "background_agents", "checkpoints", own=("schedule", "runs", "session_releases")
)
# The server that writes memory-harvest rejections, and has nothing else to do with the worker.
SERVER: Final = Needs((), ("harvest_rejections INSERT",), versioned=False)


def restore(backend: Backend) -> Needs:
    """What it takes to bring a deleted row back, and to see that its transcript is there."""
    own = ("session_releases SELECT UPDATE DELETE", "holds SELECT INSERT")
    transcripts = ("agent_sessions SELECT UPDATE",) if backend == "postgres" else ()
    return Needs(
        ("background_agents SELECT INSERT", *transcripts),
        (*own, "actions INSERT", "journal INSERT"),
    )


def by_hand(job: str, backend: Backend) -> Needs:
    """What a job needs that is run here and now, whatever scopes are named."""
    needed = _RELEASE[backend] if job == "release_sessions" else _JOBS[job]
    return together(_RECORD, needed, *([] if job == "audit_memory" else [_PAUSES]))


def dry_run(job: str, backend: Backend) -> Needs:
    """What the dry run of a job needs: it reads the ledger, what guards know, what is drained."""
    needed = _RELEASE_PREVIEWS[backend] if job == "release_sessions" else _PREVIEWS[job]
    return together(needed, _PAUSES)


def plan(job: str, backend: Backend) -> Needs:
    """What it takes to write down what a job would do, or to see what would become of a plan."""
    return together(dry_run(job, backend), _IDENTITY)


def apply(job: str, backend: Backend) -> Needs:
    """What it takes to do what a plan names."""
    return together(by_hand(job, backend), plan(job, backend))


def scheduled(jobs: Iterable[str], backend: Backend) -> Needs:
    """What the ticks of these jobs need, and the parts that they are cut into."""
    each = [together(by_hand(job, backend), _TICKS.get(job, Needs())) for job in jobs]
    return together(_TICK, *each)


def requested(jobs: Iterable[str], backend: Backend) -> Needs:
    """What it takes to look for operators' requests of these jobs and to do them."""
    each = [by_hand(job, backend) for job in jobs]
    return together(Needs((), ("requests SELECT UPDATE",)), *each)


def exporter(backend: Backend, previewed: Iterable[str]) -> Needs:
    """What a scrape reads, with the dry runs of the jobs whose backlog it shows."""
    own = (
        "schedule",
        "runs",
        "journal",
        "journal_totals",
        "memory_boundary",
        "session_releases",
        "failing_scopes",
        "breakers",
        "pauses",
        "holds",
        "requests",
        "harvest_rejections",
    )
    previews = [dry_run(job, backend) for job in previewed]
    return together(reading("background_agents", own=own), *previews)


def worker(scheduled_jobs: Iterable[str], previewed: Collection[str], backend: Backend) -> Needs:
    """What a process needs that ticks, takes requests and is scraped."""
    known = (*_JOBS, "release_sessions")
    return together(
        scheduled(scheduled_jobs, backend),
        requested(known, backend),
        exporter(backend, previewed),
    )


def operator(backend: Backend) -> Needs:
    """What a person needs for every command but `migrate`."""
    known = (*_JOBS, "release_sessions")
    return together(
        ENQUEUE,
        IMPORT,
        REARM,
        RELEASES,
        HOLDS,
        restore(backend),
        RESTORABLE,
        ERASE,
        PLACE_HOLD,
        RELEASE_HOLD,
        PAUSE,
        RESUME,
        EXPLAIN,
        HISTORY,
        ACTIONS,
        STATUS,
        DOCTOR,
        reading("agent_sessions"),
        *(by_hand(job, backend) for job in known),
        *(dry_run(job, backend) for job in (*_PREVIEWS, "release_sessions")),
        _IDENTITY,
    )
