"""At one instant a plan, a dry run and a run say and do the same, whatever the ledger holds."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config import planned as arms
from config.policy import Policy
from config.settings import load_settings
from store.database import Database
from store.errors import StoreError
from store.reconcile_parked import arm_of
from tests import ledgers
from tests.e2e.placed import LONG_AGO, Ledger
from tests.e2e.test_cli_dry_run import (
    NOW,
    SCOPES,
    StoppedDatabase,
    agents,
    checkpoints,
    defaults,
    guards,
    journaled,
    overrides,
    place,
    policy_of,
    statuses,
)
from worker import planned
from worker.context import Process
from worker.manual import by_hand, dry_run
from worker.plan_file import PlanFile

Kind = tuple[str, str, str | None]
# What lies on the ledger beside its rows: holds, pauses, and open breakers.
HOLD = "insert into maintenance.holds (scope, handle, reason, placed_by, placed_at) values "
limits = st.fixed_dictionaries({}, optional={"breaker_rows": st.sampled_from((1, 2))})
beside = st.fixed_dictionaries(
    {
        "rows_held": st.sets(st.integers(0, 13), max_size=3),
        "scopes_held": st.sampled_from(((), (), ("t",))),
        "paused": st.sampled_from(((), (), (), ("t",), ("",))),
        "tripped": st.sampled_from(((), (), ("s",))),
    }
)


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


def lay(ledger: Ledger, job: str, columns: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    for number, row in enumerate(rows):
        if number in columns["rows_held"]:
            ledger.do(f"{HOLD} ('{row['scope']}', 'a{number:02}', 'r', 'p', 0)")
    for scope in columns["scopes_held"]:
        ledger.do(f"{HOLD} ('{scope}', null, 'r', 'p', 0)")
    for scope in columns["paused"]:
        ledger.do(
            "insert into maintenance.pauses (job, scope, reason, paused_by, paused_at)"
            f" values ('{job}', '{scope}', 'r', 'p', 0)"
        )
    for scope in columns["tripped"]:
        ledger.do(
            "insert into maintenance.breakers (job, scope, reason, opened_at, detail)"
            f" values ('{job}', '{scope}', 'rows', 1, 'd')"
        )


def state_of(ledger: Ledger) -> dict[str, Any]:
    """The ledger, and what is queued to be released."""
    return {**ledger.ledger(), "queued": ledger.queued()}


def kind_of(job: str, row: dict[str, Any]) -> Kind:
    """As what a row of a plan is counted when it is done."""
    match job:
        case "reconcile_parked":
            return row["scope"], arm_of(row["reason"]), row["reason"]
        case "flip_stale_running":
            return row["scope"], "flipped", None
    return row["scope"], row["reason"], None


@pytest.mark.parametrize("job", [*statuses])
@settings(
    max_examples=12,
    deadline=timedelta(seconds=20),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_plan_dry_run_and_run_agree(
    process: Process,
    ledger: Ledger,
    tmp_path_factory: pytest.TempPathFactory,
    job: str,
    data: st.DataObject,
) -> None:
    """The run is made on a ledger laid anew; both leave the same rows and releases behind."""
    rows, approvals = data.draw(agents(job), "agents"), data.draw(checkpoints, "checkpoints")
    policy = policy_of(
        data.draw(defaults), data.draw(overrides), data.draw(guards) | data.draw(limits)
    )
    extra, scopes = data.draw(beside), data.draw(st.sampled_from((None, SCOPES, ("t",))))

    def lay_all() -> None:
        ledgers.empty(process.database)
        place(ledger, rows, approvals)
        lay(ledger, job, extra, rows)

    lay_all()
    process.policy = policy
    path = tmp_path_factory.mktemp("plans") / "a.plan"

    def make() -> None:
        planned.make(
            process,
            job,
            scopes,
            path,
            from_flags=True,
            overrides=(),
            overwrite=False,
            through=lambda _: None,
        )

    try:
        told = dry_run(process, job, scopes, policy)
    except StoreError as refusal:
        with pytest.raises(type(refusal)):
            make()
        return
    before = ledger.tables()
    make()
    assert ledger.tables() == before
    lines = [json.loads(line) for line in path.read_text().splitlines()][1:-1]
    keys = [(line["scope"], line["handle"].encode()) for line in lines]
    assert keys == sorted({*keys})
    due = Counter({(p.scope, p.arm, p.cause): p.rows for p in told if p.arm != "skipped"})
    assert Counter(kind_of(job, line) for line in lines) == due

    with closing(PlanFile(path)) as plan:
        of_plan = arms.read(plan.header.policy, policy, floors=False)
        assert planned.preview(process, plan, of_plan, ()) == due
        run = planned.carry_out(
            process, plan, of_plan, requested_by="test", overrides=(), through=lambda _: None
        )
    assert journaled(ledger, run.run_id) == due
    applied = state_of(ledger)

    lay_all()
    by_hand(process, job, scopes, policy=policy, requested_by="test")
    assert applied == state_of(ledger)


def test_releases_agree(process: Process, ledger: Ledger, tmp_path: Path) -> None:
    """A plan names the entries whose transcripts would go, and no others."""
    verdicts = {"a": "released", "b": "named", "c": "suspect", "d": "absent", "e": "held"}
    for handle, verdict in verdicts.items():
        ledger.do(
            "insert into maintenance.session_releases (scope, session_id, handle, settled_at,"
            " run_id, queued_at, not_before) values"
            f" ('s', 'x{handle}', '{handle}', {LONG_AGO}, gen_random_uuid(), 0, 0)"
        )
        if verdict != "absent":
            ledger.session(f"x{handle}", updated_at=NOW if verdict == "suspect" else 1)
    ledger.running("z", session_id="xb")
    ledger.do(f"{HOLD} ('s', 'e', 'r', 'p', 0)")

    made = planned.make(
        process,
        "release_sessions",
        None,
        tmp_path / "a.plan",
        from_flags=False,
        overrides=(),
        overwrite=False,
        through=lambda _: None,
    )

    assert made.counts == {
        ("released", None): 1,
        ("named", None): 1,
        ("suspect", None): 1,
        ("absent", None): 1,
        ("skipped", "hold"): 1,
    }
    with closing(PlanFile(tmp_path / "a.plan")) as plan:
        assert [(row.handle, row.session_id) for [*rows] in plan.pieces() for row in rows] == [
            ("a", "xa")
        ]
        run = planned.carry_out(
            process, plan, Policy.empty(), requested_by="t", overrides=(), through=lambda _: None
        )
    assert run.report == {"released": 1}
    assert ledger.transcripts("s") == ["xb", "xc", "xe"]
    assert [handle for handle, _ in ledger.queued()] == ["b", "c", "d", "e"]
