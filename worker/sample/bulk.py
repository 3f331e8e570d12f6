"""Ledgers of any size for measuring with, streamed as tuples that COPY takes as they are.

The three streams of one ledger are made from equal arguments. Nothing is kept per row, so ten
million rows need no more memory than ten. Arguments that cannot be raise ValueError when the
first row is drawn.
"""

from collections.abc import Iterator
from typing import Unpack

from worker.sample.cycle import LENGTH, Mix, Slot, deal, full_mix

Value = str | int | bool | None

COPY_COLUMNS: tuple[str, ...] = (
    "scope",
    "handle",
    "rev",
    "status",
    "owner",
    "session_scoped",
    "session_id",
    "parent_session_id",
    "root_session_id",
    "parent_task_id",
    "name",
    "agent_type",
    "description",
    "model",
    "writer_id",
    "writer_epoch",
    "spawned_at",
    "updated_at",
    "settled_at",
    "stopped_by",
    "completion_id",
    "seq",
    "parked_checkpoint_token",
    "parked_at",
    "park_claim_id",
    "content",
)
CHECKPOINT_COLUMNS: tuple[str, ...] = (
    "scope",
    "token",
    "status",
    "expires_at",
    "updated_at",
    "content",
)
SESSION_COLUMNS: tuple[str, ...] = ("scope", "session_id", "updated_at", "content")

_HOUR_MS = 3_600_000


def copy_rows(
    seed: int, now_ms: int, rows: int, scopes: int, **mix: Unpack[Mix]
) -> Iterator[tuple[Value, ...]]:
    """Stream `rows` agents, dealt to `scopes` scopes in turn, in the order of COPY_COLUMNS.

    No two due rows of a kind were last written in the same millisecond, nor two of the others as
    long as there are no more of them than half their limit has milliseconds. Older rows come
    first, but up to 997 neighbours are shuffled: rows settle in another order than they began.
    """
    cycle, _ = _ledger(seed, rows, scopes, mix)
    tenants = [(_scope(n), f"sess_h{n:06d}", f"host-{n % 16:02d}") for n in range(scopes)]
    for index in range(rows):
        slot = cycle[index % LENGTH]
        scope, host, writer = tenants[index % scopes]
        # 1 or more, larger for older rows; distinct, because the orders are a permutation.
        rank = rows + LENGTH - (index - index % LENGTH) - slot.order
        if slot.due:
            updated_at = now_ms - slot.limit_ms - rank
        else:
            updated_at = now_ms - rank * slot.limit_ms // (2 * (rows + LENGTH))
        waits = slot.checkpoint != "none"
        number = f"{index:010x}"
        yield (
            scope,
            "a" + number,
            3,
            slot.status,
            host,
            True,
            "sess_" + number if slot.has_session else None,
            None,
            host,
            None,
            slot.task.name,
            slot.task.agent_type,
            slot.task.description,
            "atlas-large-2",
            writer,
            1,
            updated_at - slot.ran_ms,
            updated_at,
            updated_at if slot.terminal else None,
            "user" if slot.status == "killed" else None,
            "done_" + number if slot.terminal else None,
            2,
            "cp_" + number if waits else None,
            updated_at if waits else None,
            "claim_" + number if slot.claim else None,
            slot.content,
        )


def copy_checkpoints(
    seed: int, now_ms: int, rows: int, scopes: int, **mix: Unpack[Mix]
) -> Iterator[tuple[Value, ...]]:
    """Stream the checkpoints that the rows of the same ledger name, as CHECKPOINT_COLUMNS.

    Rows whose checkpoint is to be missing have none here.
    """
    cycle, full = _ledger(seed, rows, scopes, mix)
    ago = now_ms - _HOUR_MS
    answered_at = ago - full["stale_claim_max_age_ms"]
    tomorrow = now_ms + 24 * _HOUR_MS
    written: dict[str, tuple[Value, ...]] = {
        "expired": ("expired", ago, ago),
        "overdue": ("pending", ago, answered_at),
        "resolved": ("resolved", tomorrow, answered_at),
        "pending": ("pending", tomorrow, answered_at),
    }
    content = '{"tool": "Bash", "question": "May I run `make migrate` against staging?"}'
    places = [place for place, slot in enumerate(cycle) if slot.checkpoint in written]
    for index in _indices(places, rows):
        state = written[cycle[index % LENGTH].checkpoint]
        yield (_scope(index % scopes), f"cp_{index:010x}", *state, content)


def copy_sessions(
    seed: int, now_ms: int, rows: int, scopes: int, **mix: Unpack[Mix]
) -> Iterator[tuple[Value, ...]]:
    """Stream the transcripts that the rows of the same ledger name, as SESSION_COLUMNS.

    All are older than any row, so that no delete takes one for revived.
    """
    cycle, _ = _ledger(seed, rows, scopes, mix)
    updated_at = now_ms - max(slot.limit_ms for slot in cycle) - rows - 2 * LENGTH
    places = [place for place, slot in enumerate(cycle) if slot.has_session]
    for index in _indices(places, rows):
        session_id = f"sess_{index:010x}"
        yield (_scope(index % scopes), session_id, updated_at, '{"turns": 12, "bytes": 48211}')


def _scope(number: int) -> str:
    return f"bulk/{number:06d}"


def _indices(places: list[int], rows: int) -> Iterator[int]:
    """Give the rows that fall on the given places of every round."""
    for begin in range(0, rows, LENGTH):
        yield from (begin + place for place in places if begin + place < rows)


def _ledger(seed: int, rows: int, scopes: int, mix: Mix) -> tuple[list[Slot], Mix]:
    if rows < 0:
        raise ValueError(f"rows is {rows}: give 0 or more.")
    if scopes < 1 or scopes % LENGTH == 0:
        raise ValueError(f"scopes is {scopes}: give 1 or more, but no multiple of {LENGTH}.")
    full = full_mix(mix)
    return deal(seed, full), full
