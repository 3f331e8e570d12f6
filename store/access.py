"""Who may see a record, and the content-free lists that are made of many."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from store.records import AgentRecord, Status


@dataclass(frozen=True, slots=True)
class Access:
    """Who asks for a record: None where the asker has no such identity."""

    owner: str | None = None
    scope: str | None = None
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class RowSummary:
    """What a list shows of a row: everything but its content."""

    handle: str
    owner: str
    session_scoped: bool
    session_id: str | None
    parent_session_id: str | None
    root_session_id: str | None
    name: str | None
    agent_type: str | None
    status: Status
    spawned_at: int
    updated_at: int
    settled_at: int | None
    usage: dict[str, Any] | None


def can_access_agent_record(record: AgentRecord, access: Access) -> bool:
    """Whether the asker may see the record. Fails closed: None matches nothing, not even None.

    A session-scoped row is its owner session's; a task-scoped row its owner task's and its parent
    session's; either is its root session's.
    """
    if not _same(record.scope, access.scope):
        return False
    if _same(record.root_session_id, access.session_id):
        return True
    if record.session_scoped:
        return _same(record.owner, access.session_id)
    return _same(record.owner, access.owner) or _same(record.parent_session_id, access.session_id)


def _same(one: str | None, other: str | None) -> bool:
    return one is not None and one == other


def query_background_agents(
    rows: Iterable[AgentRecord],
    scope: str,
    session_id: str | None = None,
    status: Status | None = None,
    limit: int | None = None,
) -> list[RowSummary]:
    """Filter rows to a scope and, where given, a session and a status; newest `limit` as summaries.

    Newest means latest `spawned_at`, ties by handle. Authorizes nothing: see
    can_access_agent_record.
    """
    matching = [
        row
        for row in rows
        if row.scope == scope
        and (session_id is None or session_id in _anchors(row))
        and (status is None or row.status == status)
    ]
    matching.sort(key=lambda row: (-row.spawned_at, row.handle))
    return [summary(row) for row in matching[:limit]]


def _anchors(row: AgentRecord) -> tuple[str | None, ...]:
    return (row.owner if row.session_scoped else row.parent_session_id, row.root_session_id)


def summary(row: AgentRecord) -> RowSummary:
    """The content-free summary of one row."""
    return RowSummary(
        handle=row.handle,
        owner=row.owner,
        session_scoped=row.session_scoped,
        session_id=row.session_id,
        parent_session_id=row.parent_session_id,
        root_session_id=row.root_session_id,
        name=row.name,
        agent_type=row.agent_type,
        status=row.status,
        spawned_at=row.spawned_at,
        updated_at=row.updated_at,
        settled_at=row.settled_at,
        usage=copy.deepcopy(row.content.get("usage")),
    )


_announced: set[tuple[str, str | None]] = set()
_announced_lock = threading.Lock()


def announce_transcript_integrity_gap_once(
    handle: str,
    scope: str | None,
    sink: Callable[[str, str | None], None] | None,
) -> None:
    """Tell the sink of a transcript that is not whole, once per handle and scope in a process.

    Without a sink nobody was told, so the once is kept for a later caller.
    """
    if sink is None:
        return
    with _announced_lock:
        if (handle, scope) in _announced:
            return
        _announced.add((handle, scope))
    sink(handle, scope)
