"""What a guarded reap does to a ledger, as plain rules over plain rows; shares no code with it.

A hold is a scope and a handle, or None for the whole scope; those given are in force.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tests.race.spec_model import ATTRIBUTION, TERMINAL, Age, Counts, Row, Tables

# 1 January 2015, in milliseconds.
AGENTS_EXIST_SINCE = 1_420_070_400_000
QUARTER_OF_AN_HOUR = 900_000
# Who claims to have written later than this from now is not believed.
AHEAD = 600_000


@dataclass(frozen=True)
class Retained:
    """What the policy says of one scope; None: nothing."""

    scope: str
    max_age: Age | None
    keep: int | None
    stale: Age | None


def ended_at(row: Row) -> int:
    """When a row ended, or was last written."""
    ended: int = row["updated_at"] if row["settled_at"] is None else row["settled_at"]
    return ended


def live_writers(tables: Tables, now: int, heartbeat: int) -> set[str]:
    """Who renewed a running row within two heartbeats."""
    return {
        row["writer_id"]
        for row in tables.agents.values()
        if row["status"] == "running" and now - 2 * heartbeat < row["updated_at"] <= now + AHEAD
    }


def reap(
    tables: Tables,
    policies: Iterable[Retained],
    now: int,
    heartbeat: int,
    *,
    fresh_flips: bool,
    plausible_times: bool,
    holds: Collection[tuple[str, str | None]] = (),
) -> Counts:
    """Delete by age, then beyond `keep`, what neither guard nor hold keeps, and count the rest."""
    counts: Counts = Counter()
    living = live_writers(tables, now, heartbeat)

    def is_believed(row: Row) -> bool:
        return not plausible_times or AGENTS_EXIST_SINCE <= ended_at(row) <= now

    def is_fresh_flip(row: Row, stale: Age | None) -> bool:
        said = row["content"].get("error"), row["content"].get("summary")
        if not fresh_flips or row["status"] != "failed" or ATTRIBUTION not in said:
            return False
        young = ended_at(row) >= now - (QUARTER_OF_AN_HOUR if stale is None else stale)
        return young or row["writer_id"] in living

    for policy in policies:
        if policy.max_age is None and policy.keep is None:
            continue
        ended = [row for row in tables.of(policy.scope) if row["status"] in TERMINAL]
        ended.sort(key=lambda row: (ended_at(row), row["handle"].encode()), reverse=True)
        believed = [row for row in ended if is_believed(row)]
        odd = len(ended) - len(believed)
        if odd:
            counts[policy.scope, "skipped", "implausible_time"] += odd
        for place, row in enumerate(believed):
            if policy.max_age is not None and ended_at(row) < now - policy.max_age:
                arm = "max_age"
            elif policy.keep is not None and place >= policy.keep:
                arm = "keep"
            else:
                continue
            whole = (policy.scope, None) in holds
            if is_fresh_flip(row, policy.stale):
                if not whole:
                    counts[policy.scope, "skipped", "fresh_flip"] += 1
                continue
            if whole or (policy.scope, row["handle"]) in holds:
                counts[policy.scope, "skipped", "hold"] += 1
                continue
            del tables.agents[row["scope"], row["handle"]]
            counts[policy.scope, arm, None] += 1
            if row["session_id"] is not None:
                key = (row["scope"], row["session_id"], row["handle"], ended_at(row))
                tables.releases[key] += 1
    return counts
