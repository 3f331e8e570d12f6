"""The in-memory reference and Postgres, driven side by side through random lives of a ledger.

After every step both must have answered alike and hold the same: every record member by member,
every checkpoint, transcript and release, every list.
"""

import copy
import json
from collections.abc import Callable
from itertools import product
from random import Random
from typing import Any, ClassVar, TypeVar, cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from store.access import RowSummary
from store.agents import PostgresAgentStore
from store.batches import BatchSize
from store.checkpoints import PostgresCheckpointStore
from store.contract import (
    AgentStore,
    Checkpoint,
    CheckpointStore,
    Expect,
    Session,
    SessionStore,
    SettledStatus,
    reconcile_parked_agents,
)
from store.database import Database
from store.errors import StoreError
from store.in_memory import InMemoryAgentStore, InMemoryCheckpointStore, InMemorySessionStore
from store.records import AgentRecord, clear_revived_row_terminal_payload
from store.retention import RetentionPolicy
from store.sessions import PostgresSessionStore
from tests import ledgers
from tests.conftest import Servers
from tests.race.drawn import (
    HANDLES,
    SCOPES,
    SESSION_IDS,
    TOKENS,
    WANTED,
    ages,
    approvals,
    expected,
    first_approval,
    first_row,
    handles,
    limits,
    malformed,
    members,
    off_by,
    others,
    policies,
    scopes,
    session_ids,
    times,
    tokens,
    writers,
)

_T = TypeVar("_T")


def record_of(handle: str, scope: str, drawn: dict[str, Any]) -> AgentRecord:
    return AgentRecord.from_json({**copy.deepcopy(drawn), "handle": handle, "scope": scope})


class Stores:
    """One implementation of everything."""

    def __init__(
        self, agents: AgentStore, checkpoints: CheckpointStore, sessions: SessionStore
    ) -> None:
        self.agents = agents
        self.checkpoints = checkpoints
        self.sessions = sessions


def everything(stores: Stores) -> dict[str, object]:
    """All that a store holds, as its readers see it."""
    held: dict[str, object] = {"scopes": stores.agents.list_scopes()}
    for scope in SCOPES:
        held[f"list of {scope}"] = stores.agents.list_by_scope(scope)
        held[f"releases of {scope}"] = sorted(
            (release.handle, release.session_id, release.settled_at)
            for release in stores.agents.list_releases(scope)
        )
        for row in stores.agents.list_by_scope(scope):
            record = stores.agents.get(row.handle, scope)
            held[f"{scope}/{row.handle}"] = record and json.dumps(record.to_json(), sort_keys=True)
        for token in TOKENS:
            held[f"{scope}/{token}"] = stores.checkpoints.get(token, scope)
        for session_id in SESSION_IDS:
            held[f"{scope}/{session_id}"] = stores.sessions.get(session_id, scope)
    return held


def outcome(act: Callable[[Stores], _T], stores: Stores) -> _T | str:
    """What it answered; for a refusal, its type and its words."""
    try:
        return act(stores)
    except StoreError as error:
        return f"{type(error).__name__}: {error}"


class SideBySide(RuleBasedStateMachine):
    """Every rule does the same to both, and their answers must be equal."""

    database: ClassVar[Database]

    @initialize(rows_a_batch=st.sampled_from([1, 2, 5000]), seed=st.integers(0, 2**32))
    def begin(self, rows_a_batch: int, seed: int) -> None:
        """Both begin with a row under every key and a checkpoint under most."""
        self._now = 40
        ledgers.empty(self.database)
        self._reference = Stores(
            InMemoryAgentStore(), InMemoryCheckpointStore(), InMemorySessionStore()
        )
        self._postgres = Stores(
            PostgresAgentStore(self.database, BatchSize(rows_a_batch, 1)),
            PostgresCheckpointStore(self.database),
            PostgresSessionStore(self.database),
        )
        # WHY by a seed: ten rows drawn one member at a time leave no room for steps.
        chance = Random(seed)
        for scope, handle in product(SCOPES, HANDLES):
            self.put(handle, scope, first_row(chance))
        for scope, token in product(SCOPES, TOKENS[:2]):
            self.put_checkpoint(token, scope, first_approval(chance))

    def both(self, act: Callable[[Stores], _T]) -> _T | str:
        wanted = outcome(act, self._reference)
        assert outcome(act, self._postgres) == wanted
        return wanted

    def put(self, handle: str, scope: str, drawn: dict[str, Any]) -> None:
        self.both(lambda stores: stores.agents.put(record_of(handle, scope, drawn)))

    def put_checkpoint(self, token: str, scope: str, approval: dict[str, Any]) -> None:
        checkpoint = Checkpoint(scope, token, content={"tool": None}, **approval)
        self.both(lambda stores: stores.checkpoints.put(checkpoint))

    @rule(by=st.integers(1, 15), scope=scopes, session_id=session_ids, limit=limits)
    def time_passes_and_somebody_looks(
        self, by: int, scope: str, session_id: str, limit: int | None
    ) -> None:
        self._now += by

        def lists(stores: Stores) -> list[list[RowSummary]]:
            return [
                found
                for status in WANTED
                for found in (
                    stores.agents.list_by_session(scope, session_id, status, limit),
                    stores.agents.list_by_scope(scope, status, limit),
                )
            ]

        self.both(lists)

    @rule(handle=handles, scope=scopes, other=others, drawn=members, expect=expected)
    def write(
        self,
        handle: str,
        scope: str,
        other: str | None,
        drawn: dict[str, Any],
        expect: dict[str, Any],
    ) -> None:
        """Put a row where there is none, else update it: now and then under a key not its own."""
        row = self._reference.agents.get(handle, scope)
        if row is None:
            self.put(handle, scope, drawn)
            return
        asked = cast(Expect, {**expect, "rev": expect["rev"] + row.rev})
        record = record_of(other or handle, scope, drawn)
        self.both(lambda stores: stores.agents.update_if(handle, scope, record, asked))

    @rule(handle=handles, scope=scopes, drawn=members)
    def put_where_there_may_be_one(self, handle: str, scope: str, drawn: dict[str, Any]) -> None:
        self.put(handle, scope, drawn)

    @rule(handle=handles, scope=scopes, at=times)
    def revive(self, handle: str, scope: str, at: int) -> None:
        """What a server does with a finished row: cleared of how it ended, and running again."""
        row = self._reference.agents.get(handle, scope)
        if row is None:
            return
        rev = row.rev
        row.status, row.updated_at = "running", at
        clear_revived_row_terminal_payload(row)
        assert self.both(lambda stores: stores.agents.update(handle, scope, row, rev)) is True

    @rule(handle=handles, scope=scopes, off_by=st.none() | off_by)
    def delete(self, handle: str, scope: str, off_by: int | None) -> None:
        row = self._reference.agents.get(handle, scope)
        rev = None if off_by is None else off_by + (row.rev if row else 1)
        self.both(lambda stores: stores.agents.delete(handle, scope, rev))

    @rule(token=tokens, scope=scopes, approval=approvals)
    def write_checkpoint(self, token: str, scope: str, approval: dict[str, Any]) -> None:
        """Put one where there is none, and settle it where there is."""
        now = self._now
        status: SettledStatus = "expired" if approval["status"] == "expired" else "resolved"
        self.both(lambda stores: stores.checkpoints.settle(token, scope, status, now))
        self.put_checkpoint(token, scope, approval)

    @rule(session_id=session_ids, scope=scopes, written_by=st.none() | st.integers(30, 120))
    def write_or_delete_transcript(
        self, session_id: str, scope: str, written_by: int | None
    ) -> None:
        if written_by is None:
            session = Session(scope, session_id, self._now, {"turns": self._now})
            self.both(lambda stores: stores.sessions.put(session))
        else:
            self.both(lambda stores: stores.sessions.delete(session_id, scope, written_by))

    @rule(policy=policies)
    def reap_every_scope(self, policy: RetentionPolicy) -> None:
        for scope in SCOPES:
            self.reap(scope, policy, ask_checkpoints=True)

    @rule(
        scope=scopes,
        policy=st.one_of(policies, policies, policies, malformed),
        ask_checkpoints=st.booleans(),
    )
    def reap(self, scope: str, policy: RetentionPolicy, ask_checkpoints: bool) -> None:
        now = self._now
        self.both(
            lambda stores: stores.agents.reap(
                scope, now, policy, stores.checkpoints if ask_checkpoints else None
            )
        )

    @rule(
        scope=scopes,
        lease=ages,
        excluded_writers=st.lists(writers, max_size=1),
        excluded_handles=st.lists(handles, max_size=1),
    )
    def reconcile(
        self,
        scope: str,
        lease: float | None,
        excluded_writers: list[str],
        excluded_handles: list[str],
    ) -> None:
        now = self._now
        self.both(
            lambda stores: reconcile_parked_agents(
                stores.agents,
                stores.checkpoints,
                scope,
                now,
                lease,
                excluded_writers,
                excluded_handles,
            )
        )

    @invariant()
    def both_hold_the_same(self) -> None:
        self.both(everything)


@pytest.mark.timeout(300)
def test_the_reference_and_postgres_live_the_same_life(servers: Servers) -> None:
    class OnThisLedger(SideBySide):
        database = servers.ledger("18", "plain")[1]

    run_state_machine_as_test(
        OnThisLedger,
        settings=settings(
            max_examples=40,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
