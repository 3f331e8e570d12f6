"""Whatever error a row gives, it is that row's; what every batch meets ends the run at once."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from uuid import UUID

import psycopg
import pytest

from store.batches import BatchSize, Stamp
from store.database import Database
from store.errors import StoreUnavailable, StoreUnusable
from store.flip_stale_running import flip_stale_running
from store.guards import UNGUARDED, Guards
from store.reap import reap
from store.reconcile_parked import reconcile_parked
from store.retention import RetentionPolicy
from tests.store.stores import NOW
from tests.store.test_isolation import HASTY, SIZE, Bench, Ledger, bench_on
from tests.store.three_jobs import JOBS, FlipUnguarded, Job, Reap

RUN = UUID(int=7)
# Limits of the server, what a person must mend, what a server says that goes away, and others.
CODES = (
    *("53000", "53200", "53400", "54000", "54001", "55000", "58030"),
    *("25006", "42501", "42703", "42804", "42883", "42P01", "3F000"),
    *("08006", "57P01", "57P03"),
    *("P0001", "22000", "22P05", "23505", "25P03", "XX000", "XX001"),
)
TIMED_OUT = ("40001", "40P01", "55P03", "57014")
EVERYBODYS = ("53100", "53300")


@pytest.fixture
def bench(plain_ledger: Ledger) -> Iterator[Bench]:
    with bench_on(plain_ledger, HASTY) as bench:
        yield bench


def test_an_error_of_any_class_is_of_the_row_that_gives_it(bench: Bench) -> None:
    """Rows before and behind it are done, and so is every other scope."""
    for code in CODES:
        bench.fill(f"'{code}'", "'a'")
        bench.fill(f"'{code}'", f"'b poisoned {code}'")
        bench.fill(f"'{code}'", "'c'")
    bench.fill("'healthy'", "'a'")

    counted = bench.reap([*CODES, "healthy"])

    assert bench.left() == {code: [f"b poisoned {code}"] for code in CODES}
    assert counted == {"max_age": 2 * len(CODES) + 1, "skipped/failing": len(CODES)}
    assert {*bench.failing} == {*CODES}
    assert {*bench.failing.values()} == {
        "Postgres reported: this row may not be written",
        "Postgres refused a value: this row may not be written",
        "Postgres refused a row: this row may not be written",
    }


@pytest.mark.parametrize("code", EVERYBODYS)
def test_no_room_for_anybody_ends_the_run_at_once(bench: Bench, code: str) -> None:
    bench.fill("'s' || n", f"'a poisoned {code}'", "generate_series(0, 9) n")

    with pytest.raises(StoreUnavailable, match="does not answer"):
        bench.reap([f"s{n}" for n in range(10)])

    assert bench.done == []


def test_what_a_person_must_mend_for_every_batch_ends_the_run_at_once(bench: Bench) -> None:
    """A batch of no row fails as well: nobody looks for the scope to blame."""
    bench.fill("'s' || n", "'a'", "generate_series(0, 9) n")
    outbox = "alter table maintenance.{} rename to {}"
    bench.beside.execute(outbox.format("session_releases", "elsewhere").encode())
    try:
        with pytest.raises(StoreUnusable, match="session_releases"):
            bench.reap([f"s{n}" for n in range(10)])
    finally:
        bench.beside.execute(outbox.format("elsewhere", "session_releases").encode())

    assert bench.done == []
    assert len(bench.left()) == 10


_JUDGED = Guards().without(["sightings", "outage", "plausible_times"])


@pytest.mark.parametrize("guards", [_JUDGED, UNGUARDED], ids=["judged", "unguarded"])
def test_a_row_that_no_flip_can_write_holds_up_no_other(bench: Bench, guards: Guards) -> None:
    """As one whose content has no room for what a flip adds."""
    for code in CODES:
        run_silent(bench, code, f"a poisoned {code}", "b")
    run_silent(bench, "healthy", "a")
    ages = [(scope, 1000) for scope in (*CODES, "healthy")]

    failing: dict[str, str] = {}
    for done in flip_stale_running(
        bench.database, ages, Stamp(NOW, RUN), BatchSize(), guards=guards
    ):
        failing |= done.failing

    running = bench.beside.execute(
        "select handle from public.background_agents where status = 'running'"
    )
    assert {handle for (handle,) in running} == {f"a poisoned {code}" for code in CODES}
    assert {*failing} == {*CODES}


def run_silent(bench: Bench, scope: str, *handles: str) -> None:
    for handle in handles:
        bench.beside.execute(
            "insert into public.background_agents (scope, handle, rev, status, owner,"
            " session_scoped, writer_id, spawned_at, updated_at, content)"
            " values (%s, %s, 1, 'running', 'owner', false, 'host-a', 0, %s, '{}')",
            (scope, handle, NOW - 5000),
        )


@pytest.mark.parametrize(
    "table", ["background_agents", "checkpoints", "maintenance.journal", "maintenance.sightings"]
)
def test_a_missing_privilege_ends_flips_and_reconciliation_at_once(
    bench: Bench, table: str
) -> None:
    """Whatever table it is missing on, and though the rows can be read."""
    schema, _, name = table.rpartition(".")
    bench.beside.execute("create role narrow login")
    bench.beside.execute("grant usage on schema public, maintenance to narrow")
    for each in ("public", "maintenance"):
        bench.beside.execute(f"grant all on all tables in schema {each} to narrow".encode())
    bench.beside.execute(
        f"revoke insert, update, delete on {schema or 'public'}.{name} from narrow".encode()
    )
    bench.beside.execute(
        "insert into public.background_agents (scope, handle, rev, status, owner, session_scoped,"
        " writer_id, spawned_at, updated_at, parked_checkpoint_token, parked_at, park_claim_id,"
        " content) values"
        " ('s', 'parked', 1, 'parked', 'owner', false, 'host-a', 0, 0, 'over', 0, null, '{}'),"
        " ('s', 'left', 1, 'parked', 'owner', false, 'host-a', 0, 0, 'gone', 0, null, '{}'),"
        " ('s', 'silent', 1, 'running', 'owner', false, 'host-a', 0, 0, 'given', 0, 'claim', '{}')"
    )
    bench.beside.execute(
        "insert into public.checkpoints (scope, token, status, expires_at, updated_at, content)"
        " values ('s', 'over', 'pending', 1, 0, '{}'), ('s', 'given', 'resolved', null, 0, '{}')"
    )
    url = psycopg.conninfo.make_conninfo(bench.url, user="narrow")
    lifted = ["outage"] if name == "sightings" else ["outage", "sightings"]
    guards = Guards().without(lifted)
    try:
        with closing(Database(url, "public", HASTY)) as narrow:
            for batches in (
                flip_stale_running(narrow, [("s", 1)], Stamp(NOW, RUN), BatchSize(), guards=guards),
                reconcile_parked(narrow, [("s", 1)], Stamp(NOW, RUN), BatchSize(), guards=guards),
            ):
                with pytest.raises(StoreUnusable, match=f"permission denied for table {name}"):
                    list(batches)
    finally:
        bench.beside.execute("drop owned by narrow")
        bench.beside.execute("drop role narrow")


EVERY_JOB = pytest.mark.parametrize(
    "job", [*JOBS, FlipUnguarded()], ids=[*(job.name for job in JOBS), "unguarded"]
)


def work(bench: Bench, job: Job, *scopes: str) -> Counter[str]:
    """What one run counted."""
    bench.failing.clear()
    return bench.counted(lambda stamp: job.batches(bench.database, [*scopes], stamp, SIZE))


def poisoned(count: int) -> list[str]:
    return [f"b poisoned {n:02}" for n in range(count)]


@EVERY_JOB
def test_rows_behind_any_number_of_failing_ones_have_their_turn(bench: Bench, job: Job) -> None:
    """Ten a run are met; the next begins behind them, and the scope fails until none is left."""
    job.place(bench.beside, "s", *poisoned(25), "c1", "c2", "c3")
    done = []
    for _ in range(4):
        done.append(work(bench, job, "s")[job.done])
        assert [*bench.failing] == ["s"]
    assert done == [0, 0, 3, 0]

    bench.beside.execute("alter table public.background_agents disable trigger misbehave")
    assert work(bench, job, "s") == {job.done: 25}
    assert bench.failing == {}


def test_each_arm_has_its_own_turn_behind_failing_rows(bench: Bench) -> None:
    """Rows without a settling time are met by another statement."""
    bench.fill("'s'", "'a poisoned ' || lpad(n::text, 2, '0')", "generate_series(1, 12) n")
    bench.fill("'s'", "'b'")
    bench.beside.execute("update public.background_agents set settled_at = null where handle = 'b'")

    assert bench.reap(["s"]) == {"max_age": 1, "skipped/failing": 10}


@pytest.mark.parametrize(
    ("arm", "policy"),
    [
        ("max_age", RetentionPolicy(max_age_ms=0)),
        ("keep", RetentionPolicy(keep=0, max_age_ms=3_600_000)),
    ],
)
def test_unsettled_rows_behind_failing_ones_have_their_turn_under_guards(
    bench: Bench, arm: str, policy: RetentionPolicy
) -> None:
    """Wherever their arm begins: these are gone through by their handles alone."""
    Reap().place(bench.beside, "s", *poisoned(12), "c", settled_at=None)

    for done in (0, 1):
        counted = bench.counted(
            lambda stamp: reap(bench.database, [("s", policy)], stamp, SIZE, guards=Guards())
        )
        assert counted[arm] == done


@EVERY_JOB
@pytest.mark.parametrize("code", TIMED_OUT)
def test_what_is_behind_a_row_that_times_out_is_done_by_the_next_run(
    bench: Bench, code: str, job: Job
) -> None:
    job.place(bench.beside, "s", f"b poisoned {code}", "c")

    for counted in ({}, {job.done: 1}, {}):
        assert work(bench, job, "s") == counted
        assert [*bench.failing] == ["s"]


@EVERY_JOB
def test_rows_in_front_of_where_a_run_gave_up_are_met_by_the_next(bench: Bench, job: Job) -> None:
    """It goes back to the first row when it is through."""
    job.place(bench.beside, "s", *poisoned(10))
    assert work(bench, job, "s") == {"skipped/failing": 10}
    job.place(bench.beside, "s", "a", "c")

    assert work(bench, job, "s") == {job.done: 2, "skipped/failing": 10}


@EVERY_JOB
@pytest.mark.parametrize(
    "after",
    [
        '{"after_key": "c"}',
        '{"after_at": "c", "after_handle": 5, "after_parked_at": "c"}',
        '{"after_handle": 5}',
        '{"after_handle": null}',
        '["c"]',
        "5",
    ],
)
def test_a_place_of_another_shape_is_not_used(bench: Bench, job: Job, after: str) -> None:
    """As another release may have written it: the run begins at the first row."""
    job.place(bench.beside, "s", *poisoned(10), "c")
    work(bench, job, "s")
    bench.beside.execute(
        "update maintenance.failing_scopes"
        f" set after = (select jsonb_object_agg(key, '{after}'::jsonb)"
        " from jsonb_each(after))".encode()
    )

    assert work(bench, job, "s") == {"skipped/failing": 10}
