"""Release the transcripts of agents that are really gone, once nobody can need them.

What: outbox entries past their delay. A transcript that a row still names stays, and so does one on
whose scope or row a hold lies; one written after its row had settled is left as suspect, for a
person. Where the transcripts are nobody's to delete here, the entries are dropped and counted as
kept.
Emits: background_agent_sessions_released_total, background_agent_session_release_failures_total.
Fails: an entry claimed by a process that died is due again when its lease ends. One that failed is
tried again later and later, and is dead after the last attempt. A system that lets nobody in, or is
away, ends the run.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from store.batches import Done
from store.release_elsewhere import release_elsewhere
from store.release_sessions import (
    JOB,
    Outbox,
    keep_sessions,
    kind_of,
    preview_release,
    release_sessions,
)
from tasks.context import Context, Planned, Tally
from tasks.paused import count_paused


@dataclass(frozen=True, slots=True)
class Report:
    """Transcripts released; entries dropped, left as suspect, or put off."""

    released: int
    absent: int  # There was no transcript (any more).
    named: int  # A row of the scope still names it.
    suspect: int  # Written after its row had settled.
    cleared: int  # Suspect entries whose transcript was released for another.
    kept: int  # Dropped, since nobody here is to delete the transcript.
    locked: int  # A writer held it: tried again later.
    failed: int  # It could not be deleted: tried again later.
    dead: int  # Of those locked and failed: no attempt is left.
    skipped: int  # A person keeps them, or has paused the job: looked at again later.
    lost_race: int  # The lease was over before another system was asked.
    more: bool  # True: the budget ended before the work did.
    failing: Mapping[str, str] = field(default_factory=dict)


def preview(ctx: Context, scopes: Sequence[str] | None) -> list[Planned]:
    """What `run` would do at this instant. Takes no lock and writes nothing."""
    with ctx.database.transaction(read_only=True, snapshot=True) as tx:
        found = preview_release(tx, scopes, ctx.stamp.now, ctx.release_backend)
    return [Planned(s, *kind_of(verdict), rows) for (s, verdict), rows in found.items()]


def run(ctx: Context, scopes: Sequence[str] | None) -> Report:
    """Drain batch by batch until nothing is due or it is time to stop; None: of all scopes.

    Safe to repeat at any point: a completed entry is gone. Raises StoreUnavailable, and
    ReleaseStopped where another system cannot be worked with.
    """
    tally = Tally(ctx.stop, ctx.pace)
    with closing(drain(ctx, scopes)) as batches:
        for done in batches:
            if tally.add(done):
                break
    count_paused(ctx, JOB, tally, scopes, preview)
    return Report(
        tally.of("released"),
        tally.of("absent"),
        tally.of("named"),
        tally.of("suspect"),
        tally.of("cleared"),
        tally.of("kept"),
        tally.of("locked"),
        tally.of("failed"),
        tally.of("dead"),
        tally.of("skipped"),
        tally.of("lost_race"),
        tally.more,
        tally.failing,
    )


def drain(
    ctx: Context, scopes: Sequence[str] | None, outbox: Outbox | None = None
) -> Generator[Done, None, None]:
    """The batches of a drain; `outbox`: the entries to be met, where not all of the scopes are."""
    match ctx.release_backend, ctx.elsewhere:
        case "none", _:
            return keep_sessions(ctx.database, scopes, ctx.stamp, ctx.drain.batch)
        case "http", elsewhere if elsewhere is not None:
            return release_elsewhere(
                ctx.database,
                elsewhere,
                scopes,
                ctx.stamp,
                ctx.drain,
                ctx.new_id,
                ctx.jitter,
                outbox,
            )
        case _:
            return release_sessions(
                ctx.database, scopes, ctx.stamp, ctx.drain, ctx.new_id, ctx.jitter, outbox
            )
