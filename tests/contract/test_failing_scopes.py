"""A scope with rows that cannot be written holds up no other, tick after tick, and is named.

And what a run by hand counts, whose budget ends turn after turn.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest

from config.policy import parse_policy
from config.settings import load_settings
from store.database import Database
from store.records import STALE_RUNNING_REAP_ATTRIBUTION
from tests.contract.test_flip_guards import now_ms, tick
from tests.race.rows import Rows
from tests.store.misbehaving import misbehaving
from worker import manual
from worker.context import Process

POLICY = """
[schedule]
reap = "1s"
flip_stale_running = "1s"
reconcile_parked = "1s"
[guards]
sightings = {sightings}
outage = false
[defaults]
max_age = "1h"
stale_running_max_age = "15m"
"""
DAY_MS = 24 * 3_600_000
REFUSED = "Postgres reported: this row may not be written"
TOO_LONG = "a statement was given up: canceling statement due to statement timeout"
EVERY_JOB = pytest.mark.parametrize("job", ["reap", "flip_stale_running", "reconcile_parked"])
STATUS = {"reap": "completed", "flip_stale_running": "running", "reconcile_parked": "parked"}
DONE = {
    "reap": "max_age",
    "flip_stale_running": "flipped",
    "reconcile_parked": "failed/checkpoint_missing",
}


@contextmanager
def process_on(url: str, *, sightings: bool = False, **settings: str) -> Iterator[Process]:
    environ = {f"MAINT_{name}": value for name, value in settings.items()}
    policy = parse_policy(POLICY.format(sightings=str(sightings).lower()), "policy.toml")
    with closing(Process(load_settings({"MAINT_DATABASE_URL": url, **environ}), policy)) as process:
        yield process


@pytest.fixture
def rows(plain_ledger: tuple[str, Database]) -> Iterator[Rows]:
    with closing(Rows(plain_ledger[0], "public")) as rows:
        yield rows


@pytest.fixture
def beside(plain_ledger: tuple[str, Database]) -> Iterator[psycopg.Connection]:
    with misbehaving(*plain_ledger) as beside:
        yield beside


def place(rows: Rows, job: str, scope: str, *handles: str) -> None:
    """Rows that have been due for a day."""
    at = now_ms() - DAY_MS
    own = {"reap": {"settled_at": at}, "reconcile_parked": {"parked_at": at}}
    for handle in handles:
        columns = {"status": STATUS[job], "updated_at": at, **own.get(job, {})}
        rows.agent(handle, scope=scope, **columns)


@EVERY_JOB
@pytest.mark.parametrize(
    ("bad", "said"),
    [(["b stuck"], TOO_LONG), ([f"b poisoned {n:02}" for n in range(10)], REFUSED)],
    ids=["hangs", "refused"],
)
def test_other_scopes_are_done_at_every_tick_beside_one_that_is_given_up(
    plain_ledger: tuple[str, Database],
    rows: Rows,
    beside: psycopg.Connection,
    job: str,
    bad: list[str],
    said: str,
) -> None:
    """What is behind the failing rows has its turn, and once they can be written all is done."""
    left = "select handle from public.background_agents where scope = %s and status = %s order by 1"
    place(rows, job, "bad", *bad)
    with process_on(plain_ledger[0], STATEMENT_TIMEOUT="400ms") as process:
        for number in range(3):
            place(rows, job, "good", f"a {number}", f"b {number}")
            place(rows, job, "bad", f"c {number}")

            run = tick(process, job)

            assert (run.state, run.failing) == ("partial", {"bad": said})
            assert run.error == f"scope bad: {said}"
            assert beside.execute(left, ("good", STATUS[job])).fetchall() == []
            assert run.report[DONE[job]] >= 2
        waiting = [handle for (handle,) in beside.execute(left, ("bad", STATUS[job]))]
        assert {*bad} <= {*waiting}
        assert "c 0" not in waiting

        beside.execute("alter table public.background_agents disable trigger misbehave")
        assert tick(process, job).state == "succeeded"
        assert beside.execute(left, ("bad", STATUS[job])).fetchall() == []


@EVERY_JOB
def test_a_run_by_hand_counts_what_it_passes_over_once_however_many_turns_it_takes(
    plain_ledger: tuple[str, Database], rows: Rows, job: str
) -> None:
    """As many as the dry run says: a budget of a second, and a pace that makes several of it."""
    place(rows, job, "s", *(f"b {number:02}" for number in range(60)))
    sightings = job != "reap"
    if sightings:
        rows.query(
            "insert into maintenance.sightings"
            " (scope, handle, verdict, rev, updated_at, writer_id, first_seen, last_seen)"
            " select scope, handle, %s, rev, updated_at, writer_id, updated_at, %s"
            " from public.background_agents returning 1",
            "stale_running" if job == "flip_stale_running" else "checkpoint_missing",
            now_ms(),
        )
        place(rows, job, "s", "a 1", "a 2", "c 1")
    else:
        for handle in ("a 1", "a 2", "c 1"):
            at = now_ms() - DAY_MS
            flipped = {"error": STALE_RUNNING_REAP_ATTRIBUTION}
            rows.agent(handle, status="failed", updated_at=at, settled_at=at, content=flipped)
        # Its writer lives.
        rows.running("renewed", updated_at=now_ms() + 5 * 60_000)
    slow = {"JOB_BUDGET": "1s", "MAX_ROWS_PER_SECOND": "15", "ROWS_PER_BATCH": "10"}

    with process_on(plain_ledger[0], sightings=sightings, **slow) as process:
        planned = {
            each.arm if each.cause is None else f"{each.arm}/{each.cause}": each.rows
            for each in manual.dry_run(process, job, ["s"], process.policy)
        }
        run = manual.by_hand(process, job, ["s"], policy=process.policy, requested_by="test")

    [parts] = rows.query(
        "select count(*) as number from maintenance.run_parts where run_id = %s and part > 0",
        run.run_id,
    )
    assert parts["number"] > 2
    kept = "skipped/sighting" if sightings else "skipped/fresh_flip"
    assert run.report == planned == {DONE[job]: 60, kept: 3}
