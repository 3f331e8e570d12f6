"""A production under random kills, and the books that have to agree at every instant.

Triggers write down what really happened to each row, in the transaction in which it happened; no
statement of ours knows of them. What the metrics say is compared with that, in one snapshot while
everything goes on, and over HTTP in the end.
"""

import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from config.policy import Policy
from store import durations
from store.durations import Kind
from store.records import STALE_RUNNING_REAP_ATTRIBUTION
from tests.e2e.deployment import READY, Deployment
from tests.e2e.processes import Child
from tests.e2e.scraping import Scrape, full_scrape, process_of, scrape, serving
from worker.exporter import counters

SCOPES: Final = 9
# Everything at once and every second; guards as short, so that what they hold is let go again.
POLICY: Final = """
allow_short_retention = true
release_delay = "0s"
[schedule]
reap = "1s"
flip_stale_running = "1s"
reconcile_parked = "1s"
release_sessions = "1s"
drain_harvest = "1s"
housekeeping = "1s"
[guards]
heartbeat = "100ms"
missing_checkpoint_sighting = "100ms"
live_writer_sighting = "200ms"
outage = false
[defaults]
max_age = "2s"
stale_running_max_age = "5s"
stale_claim_max_age = "5s"
[[override]]
match = "s7"
max_age = "off"
keep = 5
"""
# WHY so small: a kill is to fall between the batches of a part, and a roll-up among living runs.
SETTINGS: Final[dict[str, object]] = {
    "ROWS_PER_BATCH": 20,
    "SCOPES_PER_BATCH": 3,
    "SCOPES_PER_PART": 3,
    "RELEASE_BATCH": 10,
    "RELEASE_LEASE": "2s",
    "JOB_BUDGET": "10s",
    "JOURNAL_RETENTION": "2s",
    "RUN_RETENTION": "6s",
    "HARVEST_RETENTION": "5s",
}
_WATCH: Final = f"""
create schema seen;
create table seen.gone (scope text, handle text, status text, session_id text);
create table seen.changed (kind text);
create table seen.talks (scope text, session_id text);
create table seen.rejections (id bigint, code text);
create table seen.slots (job text, slot bigint);
create table seen.runs (id uuid, job text, state text, took_ms bigint);
create function seen.agent() returns trigger language plpgsql as $$ begin
    if tg_op = 'DELETE' then
        insert into seen.gone values (old.scope, old.handle, old.status, old.session_id);
    elsif old.rev <> new.rev then
        insert into seen.changed values (case
            when old.status = 'running' and new.status = 'failed'
                and new.content ->> 'error' = '{STALE_RUNNING_REAP_ATTRIBUTION.replace("'", "''")}'
                then 'flipped'
            when new.status = 'failed' then 'failed'
            when new.status = 'parked' and old.park_claim_id is not null
                and new.park_claim_id is null then 'rolled_back'
            else old.status || ' to ' || new.status
        end);
    end if;
    return null; end $$;
create trigger seen after update or delete on public.background_agents
    for each row execute function seen.agent();
create function seen.talk() returns trigger language plpgsql as $$ begin
    insert into seen.talks values (old.scope, old.session_id); return null; end $$;
create trigger seen after delete on public.agent_sessions
    for each row execute function seen.talk();
create function seen.rejection() returns trigger language plpgsql as $$ begin
    insert into seen.rejections values (new.id, new.code); return null; end $$;
create trigger seen after update on maintenance.harvest_rejections
    for each row when (new.counted_at is not null) execute function seen.rejection();
create function seen.run() returns trigger language plpgsql as $$ begin
    if tg_op = 'INSERT' then
        insert into seen.slots values (new.job, new.slot);
    elsif old.state = 'running' and new.state <> 'running' then
        insert into seen.runs
            values (new.id, new.job, new.state, new.finished_at - new.started_at);
    end if;
    return null; end $$;
create trigger seen after insert or update on maintenance.runs
    for each row execute function seen.run();
update maintenance.schema_migrations set applied_at = 0;
"""
# A handful of everything the jobs are there for, under handles that were never there before.
_WORK: Final = f"""
insert into public.background_agents
    (scope, handle, rev, status, owner, session_scoped, writer_id, session_id,
     spawned_at, updated_at, settled_at)
select 's' || n %% {SCOPES}, %(round)s || '-t' || n, 1,
    (array['completed', 'failed', 'killed'])[1 + n %% 3], 'o', false, 'w',
    %(round)s || '-' || n, 1, t.now - n, case when n %% 10 > 0 then t.now - n end
from generate_series(1, 60) n,
    (select (extract(epoch from clock_timestamp()) * 1000)::bigint as now) t;
insert into public.agent_sessions (scope, session_id, updated_at)
select 's' || n %% {SCOPES}, %(round)s || '-' || n, 1 from generate_series(1, 60) n;
insert into public.background_agents
    (scope, handle, rev, status, owner, session_scoped, writer_id, spawned_at, updated_at)
select 's' || n %% {SCOPES}, %(round)s || '-r' || n, 1, 'running', 'o', false, 'silent', 1,
    1500000000000
from generate_series(1, 12) n;
insert into public.checkpoints (scope, token, status, expires_at, updated_at)
select 's' || n %% {SCOPES}, %(round)s || '-c' || n,
    (array['pending', 'expired', 'resolved', 'pending'])[1 + n %% 4],
    case when n %% 4 = 0 then 1500000000000 end, 1500000000000
from generate_series(1, 16) n;
insert into public.background_agents
    (scope, handle, rev, status, owner, session_scoped, writer_id, spawned_at, updated_at,
     parked_at, parked_checkpoint_token, park_claim_id)
select 's' || n %% {SCOPES}, %(round)s || '-p' || n, 1,
    case when n %% 8 = 7 then 'running' else 'parked' end,
    'o', false, 'w', 1, 1500000000000, 1500000000000,
    case when n %% 5 = 0 then 'nowhere' else %(round)s || '-c' || n end,
    case when n %% 4 = 3 then 'claim' end
from generate_series(1, 16) n;
insert into maintenance.harvest_rejections (scope, session_id, code, detail, occurred_at)
select 's' || n %% {SCOPES}, 'talk', (array['too_large', 'restricted_divergence', 'Not A Code',
    'unsafe_path'])[1 + n %% 4], 'why', 1 from generate_series(1, 15) n;
"""
# What is left to do, by kind. The scope that keeps a number of rows keeps them.
_DUE: Final = """
select
    (select count(*) from public.background_agents
     where status not in ('running', 'parked') and scope <> 's7') as to_reap,
    (select count(*) from public.background_agents
     where status = 'running' and writer_id = 'silent') as to_flip,
    (select count(*) from maintenance.harvest_rejections where counted_at is null) as to_count,
    (select count(*) from maintenance.session_releases where state = 'pending') as to_release
"""


@dataclass
class Soak:
    """Two beats and three workers on one ledger, killed and replaced at random."""

    deployment: Deployment
    chance: random.Random
    rounds: int = 0
    kills: int = 0
    _parts: list[tuple[str, Child]] = field(default_factory=list)

    @classmethod
    def of(cls, deploy: Callable[..., Deployment], folder: Path, seed: int) -> "Soak":
        """A production with its watchers in place; nothing runs yet."""
        policy = folder / "soak.toml"
        policy.write_text(POLICY, encoding="utf-8")
        deployment = deploy(POLICY_FILE=policy, **SETTINGS)
        deployment.do(_WATCH)
        return cls(deployment, random.Random(seed))

    def start(self) -> None:
        """All five, at work when this comes back."""
        for kind in ("threads", "prefork", "threads", "beat", "beat"):
            self._begin(kind)
        for kind, child in self._parts:
            if kind != "beat":
                child.wait_for(READY)

    def _begin(self, kind: str) -> None:
        deployment = self.deployment
        child = deployment.beat() if kind == "beat" else deployment.worker(kind)
        self._parts.append((kind, child))

    def kill_one(self) -> None:
        """SIGKILL for one of them, whatever it does at this moment, and another in its place."""
        place = self.chance.randrange(len(self._parts))
        kind, child = self._parts.pop(place)
        child.close()
        self.kills += 1
        self._begin(kind)

    def add_work(self) -> None:
        """Something for every job to do."""
        self.rounds += 1
        # WHY without parameters: several statements at once take none.
        filled = _WORK.replace("%(round)s", f"'w{self.rounds}'").replace("%%", "%")
        self.deployment.do(filled)

    def run(self, seconds: float, scrapes: Callable[[], Scrape]) -> None:
        """Work, kills, scrapes and comparisons in turn, for so long."""
        earlier = scrapes()
        ends = time.monotonic() + seconds
        next_kill = time.monotonic() + self.chance.uniform(0.5, 2.0)
        while time.monotonic() < ends:
            self.add_work()
            if time.monotonic() >= next_kill:
                self.kill_one()
                next_kill = time.monotonic() + self.chance.uniform(0.5, 4.0)
            assert_books_agree(self.deployment)
            later = scrapes()
            assert_nothing_fell(earlier, later)
            earlier = later
            time.sleep(self.chance.uniform(0, 0.3))

    def finish(self, within_s: float = 90.0) -> None:
        """Nobody is killed any more: everything that is due is done, then all end in order."""
        ends = time.monotonic() + within_s
        while any((left := self.deployment.rows(_DUE)[0]).values()):
            assert time.monotonic() < ends, f"not made up for within {within_s:.0f} s: {left}"
            time.sleep(0.2)
        for _, child in self._parts:
            child.process.send_signal(signal.SIGTERM)
        for _, child in self._parts:
            child.ends()


def assert_nothing_fell(earlier: Scrape, later: Scrape) -> None:
    """Of two scrapes of one exporter."""
    counted = later.counters()
    fallen = {k: (v, counted.get(k)) for k, v in earlier.counters().items() if counted[k] < v}
    assert not fallen


@dataclass
class Books:
    """What the metrics would say, and what the triggers saw, of one instant."""

    totals: dict[Kind, int]
    took: dict[str, durations.Durations]
    seen: dict[str, Any]

    @classmethod
    def of(cls, deployment: Deployment) -> "Books":
        """Read in one snapshot, with the exporter's own statement."""
        statement = deployment.database.statements["journal_totals"]
        with psycopg.connect(deployment.url, row_factory=dict_row) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            counts = connection.execute(statement, {"bounds_ms": durations.bounds_ms()}).fetchall()
            seen = {name: connection.execute(q.encode()).fetchall() for name, q in _SEEN.items()}
        totals, took = durations.told_apart(
            {(r["job"], r["arm"], r["cause"] or None): r["count"] for r in counts}
        )
        return cls(totals, took, seen)


_SEEN: Final = {
    "gone": "select count(*) as n from seen.gone",
    "living": "select * from seen.gone where status in ('running', 'parked')",
    "changed": "select kind, count(*) as n from seen.changed group by kind",
    "talks": "select count(*) as n from seen.talks",
    "twice": "select scope, session_id from seen.talks group by 1, 2 having count(*) > 1",
    "rejections": "select code, count(*) as n, count(distinct id) as rows from seen.rejections"
    " group by code",
    "slots": "select job, slot from seen.slots where slot is not null"
    " group by 1, 2 having count(*) > 1",
    "runs": "select job, state, count(*) as n, sum(took_ms)::bigint as ms from seen.runs"
    " group by 1, 2",
    "reports": "select r.id, r.report, j.found from maintenance.runs r"
    " cross join lateral (select coalesce(jsonb_object_agg(w.what, w.count), '{}') as found"
    "  from (select concat_ws('/', j.arm, j.cause) as what, sum(j.count) as count"
    "   from maintenance.journal j where j.run_id = r.id and j.arm <> 'run' group by 1) w) j"
    " where r.state <> 'running' and r.rolled_up_at is null and r.report <> j.found",
}
_CODE: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")


def _codes(rejections: list[dict[str, Any]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for row in rejections:
        assert row["n"] == row["rows"], "a rejection was counted twice"
        found[row["code"] if _CODE.fullmatch(row["code"]) else "other"] += row["n"]
    return dict(found)


def assert_books_agree(deployment: Deployment) -> None:
    """Every series that has a trace in the tables is what the tables say, at one instant."""
    books = Books.of(deployment)
    shown = counters(books.totals)
    seen = books.seen
    changed = {row["kind"]: row["n"] for row in seen["changed"]}
    reconciled: Counter[str] = Counter()
    for (outcome, _), count in shown["background_agent_reconciled_total"].items():
        reconciled[outcome] += int(count)

    assert not seen["living"], "a living row was deleted"
    assert set(changed) <= {"flipped", "failed", "rolled_back"}
    assert sum(shown["background_agent_reaped_total"].values()) == seen["gone"][0]["n"]
    flipped = shown["background_agent_stale_flipped_total"].get((), 0)
    assert flipped == changed.get("flipped", 0)
    assert reconciled["failed"] == changed.get("failed", 0)
    assert reconciled["rolled_back"] == changed.get("rolled_back", 0)
    released = shown["background_agent_sessions_released_total"].get((), 0)
    assert released == seen["talks"][0]["n"]
    assert not seen["twice"], "a transcript went twice"
    rejections = {c: n for (c,), n in shown["memory_harvest_rejections_total"].items()}
    assert rejections == _codes(seen["rejections"])
    assert not seen["slots"], "a tick was done twice"
    assert shown["maintenance_job_runs_total"] == {
        (row["job"], row["state"]): row["n"] for row in seen["runs"]
    }
    ended: Counter[str] = Counter()
    took_ms: Counter[str] = Counter()
    for row in seen["runs"]:
        ended[row["job"]] += row["n"]
        took_ms[row["job"]] += row["ms"]
    assert {job: took.runs for job, took in books.took.items()} == ended
    assert {job: took.total / durations.MS for job, took in books.took.items()} == took_ms
    assert not seen["reports"], "a run says what the journal does not"


def assert_metrics_agree(deployment: Deployment) -> None:
    """The same over HTTP, by an exporter that knows nothing of before. Nothing else may run."""
    expected = counters(Books.of(deployment).totals)
    with serving(process_of(deployment.url, Policy.empty())) as served:
        found = full_scrape(served)
    for name, series in expected.items():
        shown = {k: v for k, v in found.named(name).items() if v}
        assert len(shown) == len([v for v in series.values() if v]), name
        assert sum(shown.values()) == sum(series.values()), name


def scraping(deployment: Deployment) -> Iterator[Callable[[], Scrape]]:
    """Scrapes of one exporter of the production, which is asked again and again."""
    with serving(process_of(deployment.url, Policy.empty())) as served:
        full_scrape(served)
        yield lambda: scrape(served)
