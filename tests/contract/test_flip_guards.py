"""What keeps the scheduled jobs from acting on silence that is not a writer's own."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256

import psycopg
import pytest
from psycopg.rows import dict_row

from config.policy import parse_policy
from config.settings import load_settings
from store import figures, runs
from store.database import Database
from store.outage import observe
from tests.race.rows import Rows
from tests.waiting import wait_until
from worker import frame, manual
from worker.context import Process

FLIP = "flip_stale_running"
RECONCILE = "reconcile_parked"
HOUR = 3_600_000
# All that is not said in a test: a short stale age, and a heartbeat that is shorter still.
POLICY = """
allow_short_retention = true
[schedule]
flip_stale_running = "1s"
reconcile_parked = "1s"
[guards]
heartbeat = "{heartbeat}"
breaker_hold = "{hold}"
{guards}
[defaults]
stale_running_max_age = "{age}"
"""
Make = Callable[..., Process]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def make(plain_ledger: tuple[str, Database]) -> Iterator[Make]:
    """Makes processes that share the ledger; their connections are closed afterwards."""
    made: list[Process] = []

    def process(
        age: str = "6s", guards: str = "", hold: str = "24h", heartbeat: str = "20ms"
    ) -> Process:
        text = POLICY.format(age=age, guards=guards, hold=hold, heartbeat=heartbeat)
        settings = load_settings({"MAINT_DATABASE_URL": plain_ledger[0]})
        made.append(Process(settings, parse_policy(text, "policy.toml")))
        return made[-1]

    yield process
    for each in made:
        each.close()


@pytest.fixture
def rows(plain_ledger: tuple[str, Database]) -> Iterator[Rows]:
    rows = Rows(plain_ledger[0], "public")
    # WHY: a server that was just started holds flips by itself.
    started = "select extract(epoch from clock_timestamp() - pg_postmaster_start_time())"
    wait_until(lambda: rows.scalar(started) > 6.5, "the server is up for longer than the stale age")
    yield rows
    rows.close()


@pytest.fixture
def do(plain_ledger: tuple[str, Database]) -> Callable[[str], None]:
    """Runs a statement on the ledger's database."""

    def execute(statement: str) -> None:
        with psycopg.connect(plain_ledger[0], autocommit=True, row_factory=dict_row) as connection:
            connection.execute(statement.encode())

    return execute


def heard(rows: Rows, count: int = 1) -> None:
    """Rows that are renewed, for as long as any test takes; a time further ahead is no sign."""
    for number in range(count):
        rows.running(f"heard {number}", scope="live", updated_at=now_ms() + 9 * 60_000)


def tick(process: Process, job: str = FLIP) -> runs.Run:
    """The next tick of the job with all that it found."""
    before = runs.list_runs(process.database, job, 1)

    def ticked() -> bool:
        for run_id, number in frame.tick(process, job):
            frame.work(process, run_id, number)
        return runs.list_runs(process.database, job, 1) != before

    wait_until(ticked, "the next slot", every_s=0.1)
    return runs.list_runs(process.database, job, 1)[0]


def by_hand(process: Process, *lifted: str, job: str = FLIP) -> runs.Run:
    return manual.by_hand(
        process, job, ["s"], policy=process.policy, requested_by="test", overrides=lifted
    )


def flips_in_the_end(
    process: Process, rows: Rows, act: Callable[[Process], runs.Run] = by_hand
) -> dict[str, int]:
    """Ask again until the row is flipped; gives the report of the run that did it."""
    last: list[runs.Run] = []

    def flipped() -> bool:
        last.append(act(process))
        return rows.brief("dead")[0] == "failed"

    wait_until(flipped, "the dead row is flipped", within_s=30, every_s=0.1)
    return last[-1].report


def test_silent_row_is_flipped_once_it_was_seen(rows: Rows, make: Make) -> None:
    """With every guard in force, and nothing out of the ordinary."""
    heard(rows)
    rows.running("dead")
    process = make()

    assert by_hand(process).report == {"skipped/sighting": 1}
    assert flips_in_the_end(process, rows) == {"flipped": 1}


def test_nothing_is_flipped_on_a_young_server(rows: Rows, make: Make) -> None:
    """Not before it has been up for the whole stale age; a person may lift that, on record."""
    heard(rows)
    rows.running("dead")
    process = make(age="24h")

    assert by_hand(process).report == {"skipped/outage": 1}
    assert tick(process).report == {"skipped/outage": 1}
    assert rows.brief("dead") == ("running", 1)

    run = by_hand(process, "outage", "sightings")

    assert (run.report, run.overrides) == ({"flipped": 1}, ("outage", "sightings"))


@pytest.mark.parametrize(
    ("what", "cause"),
    [
        ("ticked_at = ticked_at - 300000000", "gap"),
        ("timeline = timeline + 1", "timeline"),
    ],
)
def test_disturbance_holds_flips_for_the_whole_stale_age_and_no_longer(
    rows: Rows, make: Make, do: Callable[[str], None], what: str, cause: str
) -> None:
    heard(rows)
    tick(make())
    rows.running("dead")
    do(f"update maintenance.watches set {what}")
    process = make()
    seen: list[dict[str, int]] = []

    def disturbed() -> bool:
        seen.append(tick(process).report)
        return bool(rows.scalar("select disturbed_by from maintenance.watches") == cause)

    wait_until(disturbed, "the tick that notes it")
    since = rows.scalar("select disturbed_at from maintenance.watches")

    flips_in_the_end(process, rows, tick)
    assert "flipped" not in seen[-1]
    assert rows.row("dead")["settled_at"] - since >= 6000
    assert rows.scalar("select disturbed_at from maintenance.watches") == since


def test_worker_that_stopped_ticking_holds_flips_by_hand(
    rows: Rows, make: Make, do: Callable[[str], None]
) -> None:
    """As long as it is away: nobody knows what happened meanwhile. It is noted by a tick alone."""
    heard(rows)
    rows.running("dead")
    process = make(guards="sightings = false")
    tick(make(age="24h"))
    do("update maintenance.watches set ticked_at = ticked_at - 300000000")

    assert by_hand(process).report == {"skipped/outage": 1}
    assert rows.scalar("select disturbed_at from maintenance.watches") is None
    assert by_hand(process, "outage").report == {"flipped": 1}


def test_another_timeline_holds_flips_of_a_command_before_any_tick_sees_it(
    rows: Rows, make: Make, do: Callable[[str], None]
) -> None:
    heard(rows)
    process = make(guards="sightings = false")
    tick(process)
    rows.running("dead")
    do("update maintenance.watches set timeline = timeline + 1, ticked_at = ticked_at + 60000")

    [planned] = manual.dry_run(process, FLIP, ["s"], process.policy)
    assert (planned.cause, planned.rows) == ("outage", 1)
    assert by_hand(process).report == {"skipped/outage": 1}
    assert rows.scalar("select disturbed_at from maintenance.watches") is None


def test_tick_that_comes_after_the_next_one_moves_nothing_back(
    rows: Rows, make: Make, do: Callable[[str], None]
) -> None:
    database, now = make().database, now_ms()
    observe(database, FLIP, now, None)
    do("update maintenance.watches set postmaster_started_at = 1, timeline = 99")
    server = "select ticked_at, postmaster_started_at, timeline from maintenance.watches"
    [known] = rows.query(server)

    observe(database, FLIP, now - 60_000, None)

    assert rows.query(server) == [known]


def test_outage_shows_as_a_breaker_while_it_holds_anything(rows: Rows, make: Make) -> None:
    heard(rows)
    process = make(age="24h", guards="sightings = false")

    tick(process)
    assert not figures.open_breakers(process.database)

    rows.running("dead")
    assert tick(process).report == {"skipped/outage": 1}
    assert figures.open_breakers(process.database).keys() == {FLIP}
    [hold] = rows.query("select reason, holds_until - opened_at as ms from maintenance.breakers")
    assert hold == {"reason": "outage", "ms": 24 * HOUR}
    assert tick(process).report == {"skipped/outage": 1}

    assert by_hand(process, "outage").report == {"flipped": 1}
    tick(process)
    assert not figures.open_breakers(process.database)


@pytest.mark.parametrize("age", ["6s", "24h"])
def test_breaker_stays_open_where_a_run_that_lifts_it_passed_over_what_is_due(
    rows: Rows, make: Make, age: str
) -> None:
    """Unseen as yet, or held by the outage guard: the person has not let it finish the scope."""
    heard(rows)
    rows.running("a", "b")
    process = make(age=age, guards="breaker_rows = 1")
    open_ones = "select scope from maintenance.breakers"

    opens = by_hand(process, "sightings", "outage")
    assert opens.report == {"flipped": 1, "skipped/breaker": 1}

    assert by_hand(process, "breakers").report in ({"skipped/sighting": 1}, {"skipped/outage": 1})
    assert rows.query(open_ones) == [{"scope": "s"}]

    closes = by_hand(process, "breakers", "sightings", "outage")
    assert closes.report == {"flipped": 1, "breaker_cleared": 1}
    assert rows.query(open_ones) == []


@pytest.mark.parametrize("act", [tick, by_hand])
def test_failing_scope_is_not_mended_by_a_run_that_was_held(
    rows: Rows, make: Make, do: Callable[[str], None], act: Callable[[Process], runs.Run]
) -> None:
    """It never met what failed; one that does and finds nothing wrong mends it."""
    heard(rows)
    rows.running("a")
    failing = "insert into maintenance.failing_scopes values ('{}', 's', '{}', 'error', 1, 1)"
    do(failing.format(FLIP, "00000000-0000-0000-0000-000000000001"))
    process = make(age="24h")

    assert act(process).report == {"skipped/outage": 1}
    assert figures.failing_scopes(process.database) == {FLIP: 1}

    by_hand(process, "outage", "sightings")
    assert figures.failing_scopes(process.database) == {}


def test_silence_of_everybody_holds_flips_for_a_while_and_once(rows: Rows, make: Make) -> None:
    """When the hold is over they go on though nobody is heard; it begins again after a sign."""
    rows.running("dead", "too")
    process = make(hold="2s", guards="sightings = false")

    assert tick(process).report == {"skipped/silence": 2}
    assert figures.open_breakers(process.database).keys() == {FLIP}
    opened = rows.scalar("select opened_at from maintenance.breakers")
    flips_in_the_end(process, rows, tick)

    assert rows.row("dead")["settled_at"] - opened >= 2000
    rows.running("another")
    assert tick(process).report == {"flipped": 1}
    assert not figures.open_breakers(process.database)
    assert rows.scalar("select opened_at from maintenance.breakers") == opened

    heard(rows)
    rows.running("one more")
    assert tick(process).report == {"flipped": 1}
    assert rows.scalar("select count(*) from maintenance.breakers") == 0


def test_command_is_held_by_silence_and_writes_nothing_of_it(rows: Rows, make: Make) -> None:
    """Neither that a hold begins nor that it is over: the schedule's next tick needs to know."""
    rows.running("dead")
    process = make()
    # WHY not every hold: on a slow machine the ticks may come too late, which holds flips as well.
    silences = "select * from maintenance.breakers where reason = 'silence'"

    assert by_hand(process).report == {"skipped/silence": 1}
    assert rows.query(silences) == []

    tick(process)
    hold = rows.query(silences)
    assert len(hold) == 1
    heard(rows)

    assert "skipped/silence" not in by_hand(process).report
    assert rows.query(silences) == hold
    tick(process)
    assert rows.query(silences) == []


def test_hold_begins_with_the_first_tick_that_sees_the_silence(rows: Rows, make: Make) -> None:
    """Long before anything is stale, so that it is over when the first row is."""
    rows.running("quiet", updated_at=now_ms() - 1000)
    tick(make(age="24h"))

    assert rows.query("select reason, detail from maintenance.breakers") == [
        {"reason": "silence", "detail": "not one of 1 running rows was renewed lately"}
    ]

    heard(rows)
    tick(make(age="24h"))
    assert rows.scalar("select count(*) from maintenance.breakers") == 0


@pytest.mark.parametrize(
    ("stale", "running", "held"), [(9, 10, False), (10, 19, True), (10, 21, False)]
)
def test_many_rows_stale_at_once_hold_flips(
    rows: Rows, make: Make, stale: int, running: int, held: bool
) -> None:
    heard(rows, running - stale)
    rows.running(*(f"stale {n}" for n in range(stale)))
    process = make(guards="sightings = false")

    assert by_hand(process).report == ({"skipped/mass": stale} if held else {"flipped": stale})

    assert by_hand(process, "outage").report == ({"flipped": stale} if held else {})


def test_writers_seen_to_move_are_neither_silent_nor_a_mass(rows: Rows, make: Make) -> None:
    """Their clocks are behind; all their rows look stale, and none is flipped or held for it."""
    handles = [f"behind {n}" for n in range(12)]
    rows.running(*handles)
    process = make(heartbeat="20s")
    tick(process)
    rows.query("update public.background_agents set rev = rev + 1 returning 1 as one")
    rows.query("delete from maintenance.breakers returning 1 as one")

    assert by_hand(process).report == {"skipped/sighting": 12}


def test_dry_run_says_what_is_held(rows: Rows, make: Make) -> None:
    """And writes nothing: neither a breaker nor a sighting."""
    rows.running("dead")
    process = make()

    [planned] = manual.dry_run(process, FLIP, ["s"], process.policy)

    assert (planned.arm, planned.cause, planned.rows) == ("skipped", "silence", 1)
    assert rows.scalar("select count(*) from maintenance.breakers") == 0
    assert rows.scalar("select count(*) from maintenance.sightings") == 0
    assert rows.scalar("select count(*) from maintenance.watches") == 0


# Checkpoints


def test_reconciliation_is_refused_while_every_checkpoint_is_missing(
    rows: Rows, make: Make
) -> None:
    """One clear sentence, a breaker, and nothing done; it ends when they are back."""
    rows.parked("a", "token")
    rows.parked("b", None)
    process = make(guards="sightings = false")

    run = tick(process, RECONCILE)

    assert run.state == "failed"
    assert run.error is not None
    assert "not one checkpoint" in run.error
    assert figures.open_breakers(process.database).keys() == {RECONCILE}
    assert by_hand(process, job=RECONCILE).state == "failed"
    assert [rows.brief(handle) for handle in ("a", "b")] == [("parked", 1)] * 2

    rows.checkpoint("token")
    run = by_hand(process, job=RECONCILE)

    assert (run.state, run.report) == ("succeeded", {"failed/checkpoint_missing": 1})
    assert not figures.open_breakers(process.database)
    assert rows.brief("a") == ("parked", 1)


def test_person_may_say_that_there_are_no_checkpoints(rows: Rows, make: Make) -> None:
    rows.parked("a", "token")
    process = make(guards="sightings = false")

    run = by_hand(process, "plausible-times", job=RECONCILE)

    assert run.report == {"failed/checkpoint_missing": 1}


def test_parked_rows_that_name_no_checkpoint_need_none(rows: Rows, make: Make) -> None:
    rows.parked("a", None)
    process = make(guards="sightings = false")

    assert by_hand(process, job=RECONCILE).report == {"failed/checkpoint_missing": 1}


@pytest.mark.parametrize(
    ("breaks", "mends"),
    [
        (
            "alter table public.checkpoints rename to elsewhere",
            "alter table public.elsewhere rename to checkpoints",
        ),
    ],
)
@pytest.mark.parametrize("job", [FLIP, RECONCILE])
def test_checkpoints_that_cannot_be_read_are_an_error_and_no_absence(
    rows: Rows, make: Make, do: Callable[[str], None], breaks: str, mends: str, job: str
) -> None:
    heard(rows)
    rows.parked("a", "token")
    rows.claimed("b", "token")
    rows.checkpoint("token")
    process = make(guards="sightings = false\nplausible_times = false")
    do(breaks)
    try:
        ticked, run = tick(process, job), by_hand(process, job=job)
    finally:
        do(mends)

    assert (ticked.state, run.state) == ("failed", "failed")
    assert ticked.error is not None
    assert "checkpoints" in ticked.error
    assert (rows.brief("a"), rows.brief("b")) == (("parked", 1), ("running", 1))


YEAR = 365 * 24 * HOUR


def test_clock_that_was_ahead_for_one_tick_holds_flips_for_the_stale_age(
    rows: Rows, make: Make, do: Callable[[str], None]
) -> None:
    """What it left in the future is not waited for: neither a slot, a tick, nor a hold."""
    heard(rows)
    process = make()
    tick(process)
    rows.running("dead")
    do(f"update maintenance.schedule set last_slot = last_slot + {YEAR}")
    do(
        f"update maintenance.watches set ticked_at = ticked_at + {YEAR},"
        f" disturbed_at = ticked_at + {YEAR}, disturbed_by = 'gap'"
    )
    do(
        "insert into maintenance.breakers (job, scope, reason, opened_at, detail, holds_until)"
        f" values ('{FLIP}', '', 'silence', {now_ms() + YEAR}, '', {now_ms() + 2 * YEAR})"
    )
    assert FLIP not in figures.open_breakers(process.database)

    assert tick(process).report == {"skipped/outage": 1}
    [watched] = rows.query("select ticked_at, disturbed_at, disturbed_by from maintenance.watches")
    assert max(watched["ticked_at"], watched["disturbed_at"]) <= now_ms()
    assert flips_in_the_end(process, rows, tick)["flipped"] == 1


def test_row_that_cannot_be_noted_does_not_stop_the_tick(
    rows: Rows, make: Make, do: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Nor the rows beside it: it alone is passed over, and its scope is failing."""
    heard(rows)
    rows.running("dead", "poison")
    do(
        "create function refuse() returns trigger language plpgsql as"
        " $$ begin raise exception 'not this one'; end $$"
    )
    do(
        "create trigger refuse before insert on maintenance.sightings for each row"
        " when (new.handle = 'poison') execute function refuse()"
    )
    process = make()

    assert flips_in_the_end(process, rows, tick) == {"flipped": 1, "skipped/failing": 1}
    assert rows.brief("poison") == ("running", 1)
    assert "rows_not_noted" in caplog.messages


# With a handle of one byte the longest that the ledger's own index takes; it compresses nothing.
LONG = "".join(sha256(str(n).encode()).hexdigest() for n in range(60))


def test_scope_as_long_as_the_ledger_takes_is_worked_through(
    rows: Rows, make: Make, plain_ledger: tuple[str, Database]
) -> None:
    """Its breaker opens, and reap looks at it in time, as any other."""
    scope = longest(rows)
    heard(rows)
    rows.running("a", "b", scope=scope)
    process = make(guards="breaker_rows = 1")
    opened = "select count(*) from maintenance.breakers where length(scope) > 2600"

    wait_until(
        lambda: tick(process) is not None and rows.scalar(opened) == 1,
        "the breaker opens",
        within_s=30,
        every_s=0.1,
    )
    assert rows.scalar("select count(*) from background_agents where status = 'failed'") == 1
    reaping = Process(
        load_settings({"MAINT_DATABASE_URL": plain_ledger[0]}),
        parse_policy('[defaults]\nmax_age = "2h"\n', "policy.toml"),
    )
    with closing(reaping):
        for run_id, number in frame.tick(reaping, "reap"):
            frame.work(reaping, run_id, number)
    noted = "select count(*) from maintenance.scope_next_due where scope = '{}'"
    assert rows.scalar(noted.format(scope)) == 1


def longest(rows: Rows) -> str:
    """The longest scope, to a byte, in which the ledger's indexes take a row that is over."""
    low, high = 0, len(LONG)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            rows.finished("z", scope=LONG[:middle], settled_at=now_ms())
            low = middle
        except psycopg.Error:
            high = middle
    return LONG[:low]
