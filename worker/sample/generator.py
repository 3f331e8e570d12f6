"""A few hundred agents as a busy server would leave them, the same for the same seed and time.

The rows are aged for `policy.toml` in this folder: every job finds work at once, and more comes
due during the two minutes that follow.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from worker.sample.approvals import (
    APPROVALS,
    WATCHED_MS,
    Approval,
    checkpoint,
    past,
    row_age,
    spread,
)
from worker.sample.members import Json, describe, hex_id

# What examples/ledger.jsonl was made with: seed, and 30 November 2026, 09:00 UTC.
EXAMPLE_SEED = 2026
EXAMPLE_NOW_MS = 1_796_029_200_000

STALE_RUNNING_MAX_AGE_MS = 180_000
# Scope, its number of rows, and the retention its terminal rows are aged around. Under a policy
# that keeps the newest N an age decides nothing, so there the default serves as well as any other.
MAX_AGE_MS = 120_000
SCOPES: tuple[tuple[str, int, int], ...] = (
    ("tenant/acme", 92, MAX_AGE_MS),
    ("tenant/globex", 84, 1_800_000),
    ("org/research/vision", 52, MAX_AGE_MS),
    ("org/research/folding", 44, MAX_AGE_MS),
    ("ci/nightly", 48, MAX_AGE_MS),
    ("user/ada", 32, MAX_AGE_MS),
    ("user/grace", 24, MAX_AGE_MS),
    ("org/東京", 24, MAX_AGE_MS),
)
# Every approval appears this often; the copies go to different scopes.
_COPIES = 3


@dataclass(frozen=True, slots=True)
class SampleLedger:
    """Records of the three tables, in the camelCase members of the wire format."""

    agents: list[Json]
    checkpoints: list[Json]
    sessions: list[Json]


def json_lines(ledger: SampleLedger) -> Iterator[str]:
    """Write a ledger the way `sema-maintenance import` reads it, one object a line, no newline.

    WHY agents last: a row that arrives before its checkpoint would look abandoned, and one that
    goes before its transcript arrives would strand it.
    """
    for line in ledger.checkpoints:
        yield json.dumps({"checkpoint": line}, ensure_ascii=False)
    for line in ledger.sessions:
        yield json.dumps({"session": line}, ensure_ascii=False)
    for line in ledger.agents:
        yield json.dumps(line, ensure_ascii=False)


def sample_ledger(seed: int, now_ms: int) -> SampleLedger:
    """Make the sample as it stands at `now_ms` (milliseconds since the epoch)."""
    rng = Random(seed)  # noqa: S311  repeatable on purpose, protects nothing
    agents: list[Json] = []
    checkpoints = _answered_long_ago(rng, now_ms)
    sessions: list[Json] = []
    for number, (scope, rows, limit_ms) in enumerate(SCOPES):
        approved = _approval_rows(rng, number, now_ms, checkpoints)
        running = _running_rows(rng, rows // 6, now_ms)
        terminal = _terminal_rows(rng, rows - len(approved) - len(running), limit_ms, now_ms)
        rows_of_scope = [describe(rng, scope, row) for row in approved + running + terminal]
        rows_of_scope.sort(key=lambda row: (row["spawnedAt"], row["handle"]))
        hosts = [f"sess_host_{hex_id(rng, 8)}" for _ in range(3)]
        _share_sessions(rng, rows_of_scope)
        _link(rng, rows_of_scope, hosts)
        sessions += _sessions(rng, scope, rows_of_scope, hosts, now_ms)
        agents += rows_of_scope
    # The key of a row is scope and handle: one handle in two scopes is two rows.
    agents[-1]["handle"] = agents[0]["handle"]
    return SampleLedger([_in_order(agent) for agent in agents], checkpoints, sessions)


def _answered_long_ago(rng: Random, now_ms: int) -> list[Json]:
    """Checkpoints whose rows have gone on since: nothing names them."""
    answered = Approval("parked", "resolved")
    return [
        checkpoint(
            rng,
            (scope, f"cp_{hex_id(rng, 12)}"),
            answered,
            now_ms=now_ms,
            asked_at=now_ms - past(rng, 0),
            due_in_ms=0,
        )
        for scope, _, _ in SCOPES
    ]


def _approval_rows(rng: Random, number: int, now_ms: int, checkpoints: list[Json]) -> list[Json]:
    """Rows of scope `number` that stand in some relation to a checkpoint, which is added."""
    rows: list[Json] = []
    count = len(APPROVALS) * _COPIES
    for index in range(number, count, len(SCOPES)):
        approval = APPROVALS[index % len(APPROVALS)]
        age = row_age(rng, approval, index, count)
        updated_at = now_ms - age
        parked_at = updated_at - (rng.randrange(1_000, 90_000) if approval.claim else 0)
        row: Json = {"status": approval.status, "updatedAt": updated_at, "parkedAt": parked_at}
        if approval.claim:
            row["parkClaimId"] = f"claim_{hex_id(rng, 10)}"
        if approval.checkpoint != "none":
            row["parkedCheckpointToken"] = f"cp_{hex_id(rng, 12)}"
        if approval.checkpoint not in {"none", "missing"}:
            holder = number + 1 if approval.checkpoint == "foreign" else number
            checkpoints.append(
                checkpoint(
                    rng,
                    (SCOPES[holder % len(SCOPES)][0], row["parkedCheckpointToken"]),
                    approval,
                    now_ms=now_ms,
                    asked_at=parked_at,
                    due_in_ms=spread(index, count, 0, WATCHED_MS),
                )
            )
        rows.append(row)
    return rows


def _running_rows(rng: Random, count: int, now_ms: int) -> list[Json]:
    """Rows at work: a third just renewed, a third falling silent, a third silent for hours."""
    rows: list[Json] = []
    third = count // 3
    for index in range(count):
        if index < third:
            age = rng.randrange(55_000)
        elif index < 2 * third:
            watched_from = STALE_RUNNING_MAX_AGE_MS - WATCHED_MS
            age = spread(index - third, third, watched_from, STALE_RUNNING_MAX_AGE_MS)
        else:
            age = past(rng, STALE_RUNNING_MAX_AGE_MS)
        rows.append({"status": "running", "updatedAt": now_ms - age})
    return rows


def _terminal_rows(rng: Random, count: int, limit_ms: int, now_ms: int) -> list[Json]:
    """Finished rows: a third overdue, the others due one after another in the time watched."""
    rows: list[Json] = []
    overdue = count // 3
    for index in range(count):
        if index < overdue:
            age = past(rng, limit_ms)
        else:
            age = spread(index - overdue, count - overdue, limit_ms - WATCHED_MS, limit_ms)
        status = rng.choice(("completed", "completed", "completed", "failed", "killed"))
        row: Json = {"status": status, "updatedAt": now_ms - age, "settledAt": now_ms - age}
        if index % 9 == 8:
            del row["settledAt"]  # a writer's fault that the age arm must live with
        elif index % 4 == 3:
            row["updatedAt"] = now_ms - age * 3 // 4  # written again after it had settled
        rows.append(row)
    return rows


def _share_sessions(rng: Random, rows: list[Json]) -> None:
    """Let finished rows share a transcript with another one, and with one still at work."""
    finished = [row for row in rows if row["status"] not in {"running", "parked"}]
    at_work = next(row for row in rows if row["status"] in {"running", "parked"})
    for row, other in ((finished[0], finished[1]), (finished[2], at_work)):
        row["sessionId"] = other.setdefault("sessionId", f"sess_{hex_id(rng, 12)}")


def _link(rng: Random, rows: list[Json], hosts: list[str]) -> None:
    """Hang every row into a delegation tree: under a host's session, or under an earlier row."""
    for index, row in enumerate(rows):
        parents = [earlier for earlier in rows[:index] if "sessionId" in earlier]
        if parents and rng.randrange(3) == 0:
            parent = rng.choice(parents)
            row["parentSessionId"] = parent["sessionId"]
            row["rootSessionId"] = parent.get("rootSessionId", hosts[0])
            row["parentTaskId"] = parent["handle"]
            continue
        host = rng.choice(hosts)
        if rng.randrange(2) == 0:
            row |= {"owner": host, "sessionScoped": True}
        else:
            row["parentSessionId"] = host
        if rng.randrange(9):
            row["rootSessionId"] = host


def _sessions(
    rng: Random, scope: str, rows: list[Json], hosts: list[str], now_ms: int
) -> list[Json]:
    """Transcripts of the hosts and of the rows, but for a few that were never flushed."""
    written: dict[str, int] = dict.fromkeys(hosts, now_ms - 5_000)
    ended = 0
    for index, row in enumerate(row for row in rows if "sessionId" in row):
        last_word = row["updatedAt"] - 500
        if "settledAt" in row:
            ended += 1
            last_word = row["settledAt"] - 500
            if ended % 8 == 5:
                # Written to after its row had settled: somebody may have revived it.
                last_word = (row["settledAt"] + now_ms) // 2
        if index % 14 != 13:
            written[row["sessionId"]] = max(last_word, written.get(row["sessionId"], 0))
    return [
        {
            "scope": scope,
            "sessionId": session_id,
            "updatedAt": updated_at,
            "turns": rng.randrange(1, 120),
            "bytes": rng.randrange(900, 2_000_000),
        }
        for session_id, updated_at in written.items()
    ]


_FIRST = ("handle", "scope", "status", "rev", "owner", "sessionScoped", "sessionId", "name")


def _in_order(agent: Json) -> Json:
    """Put the members a reader looks for first, and the others behind them by name."""
    rest = sorted(set(agent).difference(_FIRST))
    return {member: agent[member] for member in (*_FIRST, *rest) if member in agent}
