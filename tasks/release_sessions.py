"""Release the transcripts of agents that are really gone, once nobody can need them.

What: outbox entries past their delay. A transcript that a row still names stays; one written after
its row had settled is left as suspect, for a person.
Emits: background_agent_sessions_released_total, background_agent_session_release_failures_total.
Fails: an entry claimed by a process that died is due again when its lease ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from store.release_sessions import preview_release, release_sessions
from tasks.context import Context, Planned, Tally


@dataclass(frozen=True, slots=True)
class Report:
    """Transcripts released; entries dropped, left as suspect, or put off."""

    released: int
    absent: int  # There was no transcript (any more).
    named: int  # A row of the scope still names it.
    suspect: int  # Written after its row had settled.
    locked: int  # A writer held it: tried again later.
    more: bool  # True: the budget ended before the work did.


def preview(ctx: Context, scopes: Sequence[str] | None) -> list[Planned]:
    """What `run` would do at this instant. Takes no lock and writes nothing."""
    with ctx.database.transaction(read_only=True, snapshot=True) as tx:
        found = preview_release(tx, scopes, ctx.stamp.now)
    return [Planned(scope, verdict, None, rows) for (scope, verdict), rows in found.items()]


def run(ctx: Context, scopes: Sequence[str] | None) -> Report:
    """Drain batch by batch until nothing is due or it is time to stop; None: of all scopes.

    Safe to repeat at any point: a completed entry is gone. Raises StoreUnavailable.
    """
    tally = Tally(ctx.stop)
    batches = release_sessions(ctx.database, scopes, ctx.stamp, ctx.drain, ctx.new_id, ctx.jitter)
    for done in batches:
        if tally.add(done):
            break
    return Report(
        tally.of("released"),
        tally.of("absent"),
        tally.of("named"),
        tally.of("suspect"),
        tally.of("locked"),
        tally.more,
    )
