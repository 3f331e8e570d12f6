"""What a tick reads follows what is due, however many scopes the ledger has.

A ledger of a thousand scopes grows to a hundred thousand while its statistics stay what they were:
none at first, then those of the small one, and at last its own.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import psycopg
import pytest

from config.policy import parse_policy
from config.settings import load_settings
from store.batches import Stamp
from tests import ledgers
from tests.conftest import Servers
from tests.plan.conftest import NOW, tables_of
from tests.plan.explaining import Plan
from tests.plan.measuring import DAY, MeasuringDatabase, fill
from worker.context import Process
from worker.jobs import JOBS

POLICY = parse_policy(
    """
    [defaults]
    max_age = "30d"
    stale_running_max_age = "15m"
    stale_claim_max_age = "15m"
    [[override]]
    match = "busy-*"
    max_age = "60d"
    keep = 3000
    """,
    "policy.toml",
)
FEW = 1_000
# Of a hundred scopes one is due.
ONE_IN = 100
# In so many a row settled since the tick before.
SETTLED = 300
# What a tick reads at most where nothing is due: a walk down a few trees, and down two for each
# scope with live rows; and then for each scope that is due.
IDLE_PAGES = {"reap": 100, "flip_stale_running": 800, "reconcile_parked": 1_600}
PAGES_PER_DUE_SCOPE = 40
MINUTE = 60_000
HOUR = 60 * MINUTE
WALKED = {
    "settled_scopes": {"background_agents_settled", "scope_next_due_pkey"},
    "scopes_come_due": {"scope_next_due_time"},
    "scopes_after": {"background_agents_pkey"},
    "oldest_settled": {
        "background_agents_terminal",
        "background_agents_unsettled",
        "scope_next_due_pkey",
    },
    "implausible_scopes": {"background_agents_terminal", "background_agents_unsettled"},
    "reap_keep_boundary": {"background_agents_terminal", "background_agents_unsettled"},
    "running_scopes": {"background_agents_running"},
    "live_scopes": {"background_agents_running", "background_agents_parked"},
}
_PLACES: list[tuple[str, ledgers.Layout, int]] = [
    ("15", "plain", 100_000),
    ("18", "plain", 100_000),
    ("15", "view", 10_000),
    ("18", "partitioned", 10_000),
]


@dataclass
class Tick:
    """What one tick found due and what it read, by statement."""

    due: list[str]
    pages: dict[str, int]
    plans: dict[str, list[Plan]]

    @property
    def read(self) -> int:
        """Every page it read."""
        return sum(self.pages.values())


@dataclass
class Story:
    """The ticks of one ledger while it grew, by what was the case and the job."""

    scopes: int
    trees: int  # As many as there are partitions.
    ticks: dict[tuple[str, str], Tick]

    @property
    def due(self) -> list[str]:
        """The scopes in which a row was written as settled long ago."""
        return [f"tenant-{n:07}" for n in range(ONE_IN, self.scopes + 1, ONE_IN)]


class Teller:
    """Ticks one ledger at times of the story's own."""

    def __init__(self, url: str, database: MeasuringDatabase) -> None:
        self._database = database
        self._process = Process(load_settings({"MAINT_DATABASE_URL": url}), POLICY)
        self._process.__dict__["database"] = database
        self._now = NOW

    def ticks(self, later_ms: int) -> dict[str, Tick]:
        """One of each job."""
        self._now += later_ms
        return {job: self._tick(job) for job in IDLE_PAGES}

    def _tick(self, job: str) -> Tick:
        self._database.forget()
        context = self._process.context(Stamp(self._now))
        if (watch := JOBS[job].watch) is not None:
            watch(context)
        find = JOBS[job].due
        assert find is not None
        due = [scope for found in find(context) for scope in found]
        return Tick(due, self._database.pages, self._database.plans)


def tell(url: str, layout: ledgers.Layout, scopes: int) -> dict[tuple[str, str], Tick]:
    """Let the ledger grow and have it looked at in between."""
    told: dict[tuple[str, str], Tick] = {}
    schema = "seen" if layout == "view" else "public"

    def note(case: str, ticks: dict[str, Tick]) -> None:
        told.update({(case, job): tick for job, tick in ticks.items()})

    with (
        closing(MeasuringDatabase(url, schema)) as database,
        psycopg.connect(url, autocommit=True) as server,
    ):
        teller = Teller(url, database)
        for table in tables_of(server):
            # WHY: the statistics are part of the story.
            server.execute(f"alter table {table} set (autovacuum_enabled = off)".encode())
        fill(server, schema, NOW, 1, FEW)
        note("first", teller.ticks(0))
        note("few, no statistics", teller.ticks(10 * MINUTE))
        server.execute("analyze")
        fill(server, schema, NOW, FEW + 1, scopes)
        note("whole, old statistics", teller.ticks(HOUR))
        note("many, old statistics", teller.ticks(10 * MINUTE))
        server.execute("vacuum analyze")
        note("many", teller.ticks(10 * MINUTE))
        moved = f"settled_at = settled_at - 40 * {DAY}::bigint"
        server.execute(
            f"update {schema}.background_agents set {moved}"
            f" where scope like 'tenant-%' and right(scope, 7)::int % {ONE_IN} = 0".encode()
        )
        note("whole", teller.ticks(HOUR))
        note("due", teller.ticks(10 * MINUTE))
        server.execute(
            f"update {schema}.background_agents set settled_at = {NOW} + 3 * {HOUR}"
            f" where scope like 'tenant-%' and right(scope, 7)::int <= {SETTLED}".encode()
        )
        note("settled", teller.ticks(10 * MINUTE))
    return told


@pytest.fixture(scope="module", params=_PLACES, ids=lambda p: f"pg{p[0]}-{p[1]}")
def story(servers: Servers, request: pytest.FixtureRequest) -> Iterator[Story]:
    """One ledger's."""
    version, layout, scopes = request.param
    with ledgers.fresh_database(servers.url(version), f"sema_idle_{layout}") as url:
        with ledgers.create(url, layout):
            pass
        trees = 4 if layout == "partitioned" else 1
        yield Story(scopes, trees, tell(url, layout, scopes))


@pytest.mark.parametrize("case", ["few, no statistics", "many, old statistics", "many"])
@pytest.mark.parametrize("job", sorted(IDLE_PAGES))
def test_idle_tick_reads_the_same_few_pages_of_any_number_of_scopes(
    story: Story, job: str, case: str
) -> None:
    tick = story.ticks[case, job]

    assert tick.read <= IDLE_PAGES[job] * story.trees, tick.pages
    assert tick.due == [] or job == "flip_stale_running"


@pytest.mark.parametrize("job", ["flip_stale_running", "reconcile_parked"])
def test_tick_finds_the_live_scopes_without_the_others(story: Story, job: str) -> None:
    """What it reads does not grow with the ledger at all, the note of who is silent included."""
    few, many = story.ticks["few, no statistics", job], story.ticks["many", job]

    assert ("sight_quiet" in many.plans) == (job == "flip_stale_running")
    assert many.read <= few.read


def test_look_at_all_scopes_finds_what_was_written_as_settled_long_ago(story: Story) -> None:
    assert story.ticks["whole, old statistics", "reap"].due == []
    assert story.ticks["whole", "reap"].due == story.due


def test_tick_reads_what_is_due_and_not_what_is_not(story: Story) -> None:
    """One scope in a hundred: the others are not asked."""
    tick = story.ticks["due", "reap"]

    assert sorted(tick.due) == story.due
    assert tick.read <= (IDLE_PAGES["reap"] + PAGES_PER_DUE_SCOPE * len(story.due)) * story.trees


def test_tick_reads_where_rows_settled_and_not_elsewhere(story: Story) -> None:
    tick = story.ticks["settled", "reap"]

    looked_at = len(story.due) + SETTLED
    assert tick.read <= (IDLE_PAGES["reap"] + PAGES_PER_DUE_SCOPE * looked_at) * story.trees
    assert tick.pages["settled_scopes"] <= PAGES_PER_DUE_SCOPE * SETTLED * story.trees
    for plan in tick.plans["settled_scopes"]:
        [probe] = plan.scans_of("scope_next_due_pkey")
        assert "scope_key = " in probe["Index Cond"], str(plan)


def test_every_look_walks_its_indexes_whatever_the_statistics_say(story: Story) -> None:
    for (case, job), tick in story.ticks.items():
        for statement, plans in tick.plans.items():
            for plan in plans:
                assert not {t for t in plan.read_whole if t.startswith("background_agents")}
                if statement in WALKED:
                    assert plan.indexes == WALKED[statement], (case, job, statement, str(plan))
