"""What is said of each row is what the dry run says of all of them: on random ledgers."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from random import Random

import pytest

from config.policy import Policy, parse_policy
from config.settings import load_settings
from store.batches import Stamp
from store.database import Database, Transaction
from store.one_row import JUDGING, Facts, facts_of
from tasks.context import Context
from tasks.outlook import JOBS, Judge, outlook
from tests.race.spec_model import Counts
from tests.race.test_dry_runs import load, sightings_of, tables_in_postgres
from tests.race.test_random_guarded import GuardedDraw, holds_of, place
from tests.race.test_random_ledgers import MINUTE, NOW, SCOPES, Ledger
from worker.context import Process
from worker.jobs import JOBS as ALL_JOBS

__all__ = ["tables_in_postgres"]

SEEDS = range(2)
VERDICTS = ("stale_running", "checkpoint_missing", "checkpoint_expired", "stale_claim", "stranded")
SAMPLED = 4
YEAR = 365 * 24 * 60 * MINUTE
ARMS = {
    "max_age": ('"off"', '"1m"', '"5m"'),
    "keep": ('"off"', "1", "5"),
    "stale_running_max_age": ('"1m"', '"5m"'),
    "stale_claim_max_age": ('"off"', '"1m"', '"5m"'),
}


def policy_of(chance: Random) -> Policy:
    """Every arm at the limits around which the rows are drawn, or off; few flips are held."""
    lines = [f"{name} = {chance.choice(values)}" for name, values in ARMS.items()]
    schedule = '[schedule]\nflip_stale_running = "20s"\n'
    guards = f"[guards]\noutage = {str(chance.random() < 0.3).lower()}\n"
    return parse_policy(
        schedule + guards + "[defaults]\n" + "\n".join(lines), "p.toml", floors=False
    )


class Drawn:
    """A random ledger under a random policy, with sightings and holds."""

    def __init__(self, ledger: Ledger, database: Database, url: str, seed: int) -> None:
        draw = GuardedDraw(900 + seed)
        self.tables = draw.tables()
        ledger.load(self.tables)
        load(database, sightings_of(draw, self.tables, VERDICTS))
        place(url, holds_of(Random(seed)))
        self.chance = draw.random
        settings = {
            "MAINT_DATABASE_URL": url,
            "MAINT_LEDGER_SCHEMA": database.statements.ledger_schema,
        }
        self.process = Process(load_settings(settings), policy_of(draw.random))

    @property
    def context(self) -> Context:
        return self.process.context(Stamp(NOW))


@pytest.fixture(params=SEEDS)
def drawn(
    tables_in_postgres: Ledger,
    database: Database,
    ledger_url: str,
    request: pytest.FixtureRequest,
) -> Iterator[Drawn]:
    drawn = Drawn(tables_in_postgres, database, ledger_url, request.param)
    with closing(drawn.process):
        yield drawn


def judge(context: Context, tx: Transaction, facts: Facts, job: str) -> Judge:
    return Judge(context, tx.over_one_row(JUDGING, facts.scope, facts.handle), facts.scope, job)


@pytest.mark.parametrize("job", JOBS)
def test_each_row_by_itself_is_what_the_dry_run_counts(
    drawn: Drawn, database: Database, job: str
) -> None:
    """Holds, fresh flips, odd times, sightings and held flips are all among them."""
    context = drawn.context
    preview = ALL_JOBS[job].preview
    assert preview is not None
    scopes = drawn.chance.sample(SCOPES, 2)
    counted: Counts = Counter()
    for each in preview(context, scopes):
        counted[str(each.scope), each.arm, each.cause] += each.rows
    said: Counts = Counter()
    with database.transaction(read_only=True, snapshot=True) as tx:
        held = Judge(context, tx, scopes[0], job).held()
        reason = next(iter(held.values()), None)
        for scope, handle in (key for key in drawn.tables.agents if key[0] in scopes):
            one = Judge(context, tx.over_one_row(JUDGING, scope, handle), scope, job)
            says = one.at(NOW, held={} if reason is None else {scope: reason})
            if says is not None:
                said[scope, says.arm, says.cause] += 1

    assert said == counted


@pytest.mark.parametrize("job", JOBS)
def test_the_earliest_time_is_the_first_at_which_the_dry_run_acts(
    drawn: Drawn, database: Database, job: str
) -> None:
    """Not a millisecond before, nor at any time between; and never where it says never."""
    context, chance = drawn.context, drawn.chance
    keys = chance.sample(sorted(drawn.tables.agents), SAMPLED)
    with database.transaction(read_only=True, snapshot=True) as tx:
        for key in keys:
            facts = facts_of(tx, *key, NOW)
            found = outlook(context, tx, facts, job)
            one = judge(context, tx, facts, job)
            if found.acts_at is None:
                later = [NOW + chance.randrange(1, YEAR) for _ in range(3)]
                assert not any(says.acts for at in later if (says := one.at(at)) is not None)
            elif not found.to_be_seen:
                assert one.at(found.acts_at) == found.then
                earlier = [found.acts_at - 1, chance.randrange(NOW, found.acts_at + 1) - 1]
                acts = [at for at in earlier if at >= NOW and (s := one.at(at)) and s.acts]
                assert acts == []
            if found.due_at is not None and found.due_at > NOW:
                assert one.at(found.due_at) is not None
                assert one.at(found.due_at - 1) is None


def test_the_drawn_ledgers_hold_every_case(drawn: Drawn) -> None:
    """Rows that something becomes of now, and rows that are passed over, of every job."""
    for job in JOBS:
        preview = ALL_JOBS[job].preview
        assert preview is not None
        arms = {each.arm == "skipped" for each in preview(drawn.context, SCOPES)}
        assert arms == {True, False} or job == "flip_stale_running"
