"""A dry run says exactly what the run at the same instant does, whatever the ledger holds."""

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.rows import DictRow

from config.policy import Policy, parse_policy
from config.settings import load_settings
from store.database import Database, Transaction
from store.errors import StoreError
from tests import ledgers
from tests.e2e.placed import Ledger
from worker.context import Process
from worker.manual import by_hand, dry_run

NOW = 1_800_000_000_000
LIMIT = 3_600_000
# On both sides of a limit of an hour, at it, far past it, and in the future.
AGES = (LIMIT + 1, LIMIT, LIMIT - 1, 40 * LIMIT, 41 * LIMIT, 0, -5)
SCOPES = ("s", "t")
TOKENS = ("t1", "t2", "t3")


class StoppedClock(Transaction):
    """A transaction on a database whose clock stands still; everything else is real."""

    def one(self, statement: str, params: Any = None) -> DictRow | None:
        return {"now": NOW} if statement == "clock" else super().one(statement, params)


class StoppedDatabase(Database):
    """The database at one instant."""

    @contextmanager
    def transaction(
        self, *, read_only: bool = False, snapshot: bool = False, brief: bool = False
    ) -> Iterator[Transaction]:
        with super().transaction(read_only=read_only, snapshot=snapshot, brief=brief) as tx:
            yield StoppedClock(tx._connection, self.statements)


ages = st.sampled_from(AGES)
times = ages.map(lambda age: NOW - age)
maybe_times = times | st.none()

# Of each job's own rows there are many, so that most ledgers hold something to do.
statuses = {
    "reap": ("completed", "failed", "killed", "completed", "running", "parked"),
    "flip_stale_running": ("running", "running", "running", "parked", "completed"),
    "reconcile_parked": ("parked", "parked", "running", "running", "killed"),
}


def agents(job: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    columns = {
        "scope": st.sampled_from(SCOPES),
        "status": st.sampled_from(statuses[job]),
        "updated_at": times,
        "settled_at": maybe_times,
        "parked_at": maybe_times,
        "parked_checkpoint_token": st.sampled_from((*TOKENS, *TOKENS, "missing", None)),
        "park_claim_id": st.sampled_from(("claim", None)),
        "session_id": st.sampled_from(("x", "y", None)),
    }
    return st.lists(st.fixed_dictionaries(columns), min_size=6, max_size=14)


approval = st.fixed_dictionaries(
    {
        "status": st.sampled_from(("pending", "resolved", "expired")),
        "expires_at": maybe_times,
        "updated_at": maybe_times,
    }
)
checkpoints = st.fixed_dictionaries(
    {
        (scope, token): st.integers(0, 4).flatmap(lambda n: approval if n else st.none())
        for scope in SCOPES
        for token in TOKENS
    }
)
defaults = st.fixed_dictionaries(
    {
        "max_age": st.sampled_from(("1h", "0s", "off")),
        "keep": st.sampled_from((0, 1, 3, "off")),
        "stale_running_max_age": st.sampled_from(("1h", "1h", "off")),
        "stale_claim_max_age": st.sampled_from(("1h", "1h", "off")),
    }
)
overrides = st.fixed_dictionaries(
    {},
    optional={
        "max_age": st.sampled_from(("30m", "off")),
        "keep": st.sampled_from((2, "off")),
        "stale_running_max_age": st.sampled_from(("30m", "off")),
        "stale_claim_max_age": st.sampled_from(("30m", "off")),
    },
)


# WHY never sightings: they are by the clock of the server, which nothing here can stop. Those of a
# dry run and its run are compared in tests/race.
guards = st.fixed_dictionaries(
    {
        "sightings": st.just(value=False),
        "outage": st.booleans(),
        "fresh_flips": st.booleans(),
        "plausible_times": st.booleans(),
    }
)
UNGUARDED = dict.fromkeys(("sightings", "outage", "fresh_flips", "plausible_times"), False)


def worded(sets: dict[str, Any]) -> str:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in sets.items())


def policy_of(defaults: dict[str, Any], override: dict[str, Any], guards: dict[str, Any]) -> Policy:
    text = f"allow_short_retention = true\n[guards]\n{worded(guards)}"
    text += f"[defaults]\n{worded(defaults)}"
    if override:
        text += f'[[override]]\nmatch = "t"\n{worded(override)}'
    return parse_policy(text, "policy.toml")


policies = st.builds(policy_of, defaults, overrides, guards)


@pytest.fixture
def process(plain_ledger: tuple[str, Database]) -> Iterator[Process]:
    url, _ = plain_ledger
    process = Process(load_settings({"MAINT_DATABASE_URL": url}), Policy.empty())
    process.__dict__["database"] = StoppedDatabase(url, "public")
    with closing(process):
        yield process


@pytest.fixture
def ledger(plain_ledger: tuple[str, Database]) -> Iterator[Ledger]:
    with closing(Ledger(plain_ledger[0])) as ledger:
        yield ledger


def place(
    ledger: Ledger, rows: list[dict[str, Any]], approvals: dict[Any, dict[str, Any] | None]
) -> None:
    for number, columns in enumerate(rows):
        ledger.agent(f"a{number:02}", **columns)
    for (scope, token), approved in approvals.items():
        if approved is not None:
            ledger.checkpoint(token, scope=scope, **approved)


def journaled(ledger: Ledger, run_id: uuid.UUID) -> dict[tuple[str, str, str | None], int]:
    """What the run did, by scope, arm and cause."""
    counts: Counter[tuple[str, str, str | None]] = Counter()
    for row in ledger.query(
        "select scope, arm, cause, count from maintenance.journal"
        " where run_id = %s and arm <> 'run'",
        run_id,
    ):
        counts[row["scope"], row["arm"], row["cause"]] += row["count"]
    return dict(counts)


def assert_dry_run_equals_run(
    process: Process, ledger: Ledger, job: str, policy: Policy, scopes: tuple[str, ...] | None
) -> set[tuple[str, str | None]]:
    """Both, one after the other, at one instant; gives the arms and causes there were."""
    before = ledger.tables()

    refused = None
    try:
        planned = dry_run(process, job, scopes, policy)
    except StoreError as refusal:
        planned, refused = [], str(refusal)
    untouched = ledger.tables()
    run = by_hand(process, job, scopes, policy=policy, requested_by="test")

    assert untouched == before
    if refused is not None:
        # WHY None, too: where nothing is due there is no part that could be refused.
        assert (run.report, run.error in {None, refused}) == ({}, True)
        return set()
    assert (run.state, run.error) == ("succeeded", None)
    assert all(each.rows > 0 for each in planned)
    told = {(each.scope, each.arm, each.cause): each.rows for each in planned}
    assert len(told) == len(planned)
    assert told == journaled(ledger, run.run_id)
    # And once it is done, nothing is left to do but what is passed over each time.
    again = dry_run(process, job, scopes, policy)
    assert {each.arm for each in again} <= {"skipped"}
    return {(each.arm, each.cause) for each in planned}


@pytest.mark.parametrize("job", [*statuses])
@settings(
    max_examples=25,
    deadline=timedelta(seconds=20),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_dry_run_equals_the_run_on_any_ledger(
    process: Process, ledger: Ledger, job: str, data: st.DataObject
) -> None:
    ledgers.empty(process.database)
    place(ledger, data.draw(agents(job), "agents"), data.draw(checkpoints, "checkpoints"))
    policy = data.draw(policies, "policy")
    scopes = data.draw(st.sampled_from((None, SCOPES, ("t",))), "scopes")

    assert_dry_run_equals_run(process, ledger, job, policy, scopes)


AROUND = (LIMIT - 1, LIMIT, LIMIT + 1)


@pytest.mark.parametrize(
    ("job", "kinds"),
    [
        ("flip_stale_running", {("flipped", None)}),
        (
            "reconcile_parked",
            {
                ("failed", "checkpoint_expired"),
                ("failed", "checkpoint_missing"),
                ("failed", "stranded"),
                ("rolled_back", "stale_claim"),
                ("skipped", "undated_checkpoint"),
            },
        ),
    ],
)
def test_a_dry_run_equals_the_run_on_every_relation_of_row_and_checkpoint(
    process: Process, ledger: Ledger, job: str, kinds: set[tuple[str, str | None]]
) -> None:
    """Status, claim, checkpoint and both ages in all combinations, around their limits."""
    approvals: list[dict[str, Any] | None] = [
        None,
        *({"status": "pending", "expires_at": NOW - age} for age in (-1, 0, 1)),
        *({"status": "pending", "updated_at": NOW - age} for age in AROUND),
        *({"status": "expired", "updated_at": NOW - age} for age in AROUND),
        *({"status": "resolved", "updated_at": NOW - age} for age in AROUND),
        {"status": "resolved"},
    ]
    for number, (status, claim, approval, age) in enumerate(
        product(("running", "parked"), ("claim", None), approvals, AROUND)
    ):
        token = f"t{number:03}"
        ledger.agent(
            f"a{number:03}",
            status=status,
            updated_at=NOW - age,
            parked_at=NOW - age,
            park_claim_id=claim,
            parked_checkpoint_token=token,
        )
        if approval is not None:
            ledger.checkpoint(token, **approval)
    both = {"stale_running_max_age": "1h", "stale_claim_max_age": "1h"}
    policy = policy_of(both, {}, UNGUARDED)

    assert assert_dry_run_equals_run(process, ledger, job, policy, None) == kinds


@pytest.mark.parametrize("keep", [None, 0, 1, 20])
def test_a_dry_run_of_a_reap_equals_the_run_around_its_limit(
    process: Process, ledger: Ledger, keep: int | None
) -> None:
    """Settled, or never said to be, on both sides of the limit, with and without `keep`."""
    times = product(("completed", "failed", "killed"), (None, *AROUND), AROUND, range(2))
    for number, (status, settled, updated, _) in enumerate(times):
        ledger.agent(
            f"a{number:03}",
            status=status,
            updated_at=NOW - updated,
            settled_at=None if settled is None else NOW - settled,
            session_id=f"x{number}",
        )
    arms = {"max_age": "1h", "keep": "off" if keep is None else keep}
    policy = policy_of(arms, {}, UNGUARDED)

    kinds = assert_dry_run_equals_run(process, ledger, "reap", policy, ("s",))

    assert kinds == {("max_age", None)} | (set() if keep is None else {("keep", None)})
