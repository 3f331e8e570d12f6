"""Under its own policy the sample keeps every job busy for two minutes, from the first moment."""

from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.unit.worker.sample_reading import (
    LEDGER,
    PARKED,
    POLICY,
    RUNNING,
    cases_at,
    ended,
    key,
    milliseconds,
)
from worker.sample.generator import EXAMPLE_NOW_MS


def reaped(at_ms: int) -> set[tuple[str, str]]:
    due: set[tuple[str, str]] = set()
    by_scope: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for agent in LEDGER.agents:
        if ended(agent):
            updated_at: int = agent["updatedAt"]
            settled_at: int = agent.get("settledAt", updated_at)
            by_scope[agent["scope"]].append((settled_at, agent["handle"]))
    for scope, rows in by_scope.items():
        rule = POLICY.for_scope(scope)
        rows.sort(reverse=True)
        if rule.keep is not None:
            due |= {(scope, handle) for _, handle in rows[rule.keep :]}
        if rule.max_age is not None:
            oldest = at_ms - milliseconds(rule.max_age)
            due |= {(scope, handle) for settled_at, handle in rows if settled_at < oldest}
    return due


def flipped(at_ms: int) -> set[tuple[str, str]]:
    """Rows without an approval, whose silence alone decides."""
    limit_ms = milliseconds(POLICY.for_scope("").stale_running_max_age)
    return {
        key(agent)
        for agent in LEDGER.agents
        if agent["status"] == RUNNING
        and "parkClaimId" not in agent
        and agent["updatedAt"] < at_ms - limit_ms
    }


def reconciled(at_ms: int) -> set[tuple[str, str]]:
    """Parked rows that end because their checkpoint did, or was answered and never resumed."""
    return {
        key(case.agent)
        for case in cases_at(at_ms)
        if case.agent["status"] == PARKED
        and (case.state in {"expired", "missing"} or (case.state == "resolved" and case.past_lease))
    }


def released(at_ms: int) -> set[tuple[str, str]]:
    named = {key(agent) for agent in LEDGER.agents if "sessionId" in agent}
    return reaped(at_ms) & named


DUE: dict[str, Callable[[int], set[tuple[str, str]]]] = {
    "reap": reaped,
    "flip_stale_running": flipped,
    "reconcile_parked": reconciled,
    "release_sessions": released,
}


class TestTheTwoMinutes:
    """The rows are aged for the policy beside the generator, by nobody's work but the clock's."""

    @pytest.mark.parametrize("job", DUE)
    def test_job_has_work_at_once(self, job: str) -> None:
        assert len(DUE[job](EXAMPLE_NOW_MS)) >= 10

    @pytest.mark.parametrize("start_s", range(0, 120, 20))
    @pytest.mark.parametrize("job", DUE)
    def test_more_comes_due_in_every_twenty_seconds(self, job: str, start_s: int) -> None:
        before = DUE[job](EXAMPLE_NOW_MS + start_s * 1_000)
        after = DUE[job](EXAMPLE_NOW_MS + (start_s + 20) * 1_000)

        assert before < after

    @pytest.mark.parametrize("job", DUE)
    def test_job_runs_several_times_meanwhile(self, job: str) -> None:
        assert POLICY.schedule[job] <= timedelta(seconds=20)
        assert POLICY.release_delay == timedelta(0)

    def test_some_transcripts_of_the_first_deletions_look_revived(self) -> None:
        deleted = reaped(EXAMPLE_NOW_MS)
        written = {
            (line["scope"], line["sessionId"]): line["updatedAt"] for line in LEDGER.sessions
        }
        suspect = [
            key(agent)
            for agent in LEDGER.agents
            if key(agent) in deleted
            and "settledAt" in agent
            and written.get((agent["scope"], agent.get("sessionId")), 0) > agent["settledAt"]
        ]

        assert len(suspect) >= 2

    def test_two_tenants_have_rules_of_their_own(self) -> None:
        usual = POLICY.for_scope("")
        scopes = {agent["scope"] for agent in LEDGER.agents}

        special = {scope for scope in scopes if POLICY.for_scope(scope) != usual}

        assert special == {"tenant/acme", "tenant/globex"}
