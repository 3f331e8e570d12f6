"""A row that a run passes over counts once for each cause, however often the run meets it.

What is right is what the dry run said of the ledger before the run began.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from store import runs
from store.batches import BatchSize, Done, Stamp
from store.flip_stale_running import flip_stale_running, preview_flip
from store.guards import Guards
from store.reap import preview_reap, reap
from store.retention import RetentionPolicy
from store.runs import Run
from tests.store.stores import NOW
from tests.store.test_isolation import HASTY, Bench, Ledger, bench_on
from tests.store.three_jobs import JOBS, Job, Reap, journal, named

SMALL = BatchSize(rows=10, scopes=2)
Batches = Callable[[Stamp], Iterator[Done]]
EVERY_JOB = pytest.mark.parametrize("job", JOBS, ids=[job.name for job in JOBS])


@pytest.fixture
def bench(plain_ledger: Ledger) -> Iterator[Bench]:
    with bench_on(plain_ledger, HASTY) as bench:
        yield bench


def numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix} {n:02}" for n in range(count)]


def turns(
    bench: Bench, job: str, scopes: list[str], batches: Batches, run: Run | None = None
) -> tuple[UUID, int]:
    """A run whose turns each end with the first batch that changes a row; how many they were.

    Whatever the report says then, the next turn begins at the first row of every scope.
    """
    run = run or runs.open_run(bench.database, job, "test", (), uuid4())
    more, turn = True, 0
    while more:
        turn += 1
        part = runs.begin_part(bench.database, run, turn, scopes)
        stamp = Stamp(NOW, run.run_id, batch=turn * 1_000_000)
        more, failing = False, dict[str, str]()
        for done in batches(stamp):
            failing |= done.failing
            if done.rows:
                more = True
                break
        runs.finish_part(bench.database, part, "succeeded", failing=failing)
    return run.run_id, turn


@EVERY_JOB
def test_turns_of_one_run_count_what_is_passed_over_once(bench: Bench, job: Job) -> None:
    """In front of what they do, among it and behind it, in several scopes."""
    scopes = ["s", "t", "u"]
    for scope in scopes:
        job.place(bench.beside, scope, *numbered("a", 3), *numbered("e", 2), due=False)
        job.place(bench.beside, scope, *numbered("b", 15))
        job.place(bench.beside, scope, *numbered("c", 7), due=False)
        job.place(bench.beside, scope, *numbered("d", 8))
    planned = job.planned(bench.database, scopes)
    assert planned == {job.done: 69, job.kept: 36}

    run_id, count = turns(
        bench, job.name, scopes, lambda stamp: job.batches(bench.database, scopes, stamp, SMALL)
    )

    assert count > 5
    assert journal(bench.beside, run_id) == planned


@EVERY_JOB
def test_a_run_that_goes_back_to_the_first_row_counts_what_is_passed_over_once(
    bench: Bench, job: Job
) -> None:
    """It begins behind the rows at which the last run gave the scope up."""
    job.place(bench.beside, "s", *numbered("b poisoned", 10))
    job.place(bench.beside, "t", "a")
    job.place(bench.beside, "t", *numbered("b", 4), due=False)

    def once() -> Counter[str]:
        return bench.counted(lambda stamp: job.batches(bench.database, ["s", "t"], stamp, SMALL))

    assert once() == {job.done: 1, "skipped/failing": 10, job.kept: 4}
    job.place(bench.beside, "s", *numbered("a", 3), *numbered("c", 4), due=False)
    job.place(bench.beside, "s", *numbered("d", 25))
    planned = job.planned(bench.database, ["s"])
    assert planned == {job.done: 35, job.kept: 7}

    counted = once()

    # The scope `t` has four rows more that the guard keeps.
    assert counted[job.kept] == planned[job.kept] + 4
    assert counted[job.done] + counted["skipped/failing"] == planned[job.done]
    assert counted["skipped/failing"] == 10


@EVERY_JOB
def test_turns_of_a_run_that_goes_back_count_once(bench: Bench, job: Job) -> None:
    """Each begins where the last run gave up, and goes back when it is through."""
    job.place(bench.beside, "s", *numbered("b poisoned", 10))
    bench.counted(lambda stamp: job.batches(bench.database, ["s"], stamp, SMALL))
    bench.beside.execute("alter table public.background_agents disable trigger misbehave")
    job.place(bench.beside, "s", *numbered("a", 3), *numbered("c", 4), due=False)
    job.place(bench.beside, "s", *numbered("d", 25))
    planned = job.planned(bench.database, ["s"])

    run_id, count = turns(
        bench, job.name, ["s"], lambda stamp: job.batches(bench.database, ["s"], stamp, SMALL)
    )

    assert count > 3
    assert journal(bench.beside, run_id) == planned == {job.done: 35, job.kept: 7}


@EVERY_JOB
def test_failing_rows_count_once_whatever_turns_meet_them(bench: Bench, job: Job) -> None:
    """Also in a scope that an earlier turn gave up: the run leaves it then, and is partial."""
    job.place(bench.beside, "few", *numbered("a poisoned", 3), *numbered("b", 25))
    job.place(bench.beside, "many", *numbered("a poisoned", 25), "b")

    scopes = ["few", "many"]

    def batches(stamp: Stamp) -> Iterator[Done]:
        return job.batches(bench.database, scopes, stamp, SMALL)

    run = runs.open_run(bench.database, job.name, "test", (), uuid4())
    _, count = turns(bench, job.name, scopes, batches, run)
    over = runs.end_handing_out(bench.database, run)

    assert count > 2
    assert journal(bench.beside, run.run_id) - Counter({"run/partial": 1}) == {
        job.done: 25,
        "skipped/failing": 13,
    }
    assert over is not None
    assert (over.state, {*over.failing}) == ("partial", {*scopes})
    # The next runs go on behind the rows at which that one gave up.
    done = [bench.counted(batches)[job.done] for _ in range(2)]
    assert done == [0, 1]


@pytest.mark.parametrize("lifted", [[], ["fresh-flips"]], ids=["guarded", "lifted"])
def test_what_is_left_to_other_batches_of_a_scope_that_a_turn_gave_up_counts_too(
    bench: Bench, lifted: list[str]
) -> None:
    """Rows of the other arm, and those without a settling time."""
    job = Reap()
    young: dict[str, Any] = {"settled_at": NOW - 1000, "updated_at": NOW - 1000}
    job.place(bench.beside, "s", "a 1", "a 2", "a 3", due=False)
    job.place(bench.beside, "s", *numbered("b poisoned", 12))
    job.place(bench.beside, "s", "c 1", "c 2", due=False, **{**young, "settled_at": None})
    job.place(bench.beside, "s", *numbered("d", 12), "d poisoned", **young)
    job.place(bench.beside, "t", *numbered("a", 25))
    policy = RetentionPolicy(max_age_ms=3000, keep=0)
    policies = [("s", policy), ("t", policy)]
    guards = Guards().without(["breakers", "plausible-times", *lifted])

    run_id, count = turns(
        bench,
        "reap",
        ["s", "t"],
        lambda stamp: reap(bench.database, policies, stamp, SMALL, guards=guards),
    )

    assert count > 3
    counted = journal(bench.beside, run_id)
    assert counted["skipped/fresh_flip"] == (0 if lifted else 5)
    # Ten of the age arm, and one behind it that only `keep` meets.
    assert counted["skipped/failing"] == 11


@EVERY_JOB
def test_a_batch_that_comes_again_in_halves_has_counted_nothing(bench: Bench, job: Job) -> None:
    """What was passed over beside the row that fails counts when its part of the batch commits."""
    job.place(bench.beside, "s", *numbered("a", 4), *numbered("c", 4), due=False)
    job.place(bench.beside, "s", "b poisoned", *numbered("d", 3))
    job.place(bench.beside, "t", *numbered("a", 2), due=False)

    counted = bench.counted(lambda stamp: job.batches(bench.database, ["s", "t"], stamp, SMALL))

    assert counted == {job.done: 3, job.kept: 10, "skipped/failing": 1}


@EVERY_JOB
def test_parts_of_one_run_over_other_scopes_do_not_count_for_each_other(
    bench: Bench, job: Job
) -> None:
    """Two at once, batch by batch, and one after they have ended."""
    for scope in ("s", "t", "u"):
        job.place(bench.beside, scope, *numbered("a", 12), due=False)
        job.place(bench.beside, scope, *numbered("b", 12))
    planned = job.planned(bench.database, ["s", "t", "u"])
    run = runs.open_run(bench.database, job.name, "test", (), uuid4())

    def part(number: int, scope: str) -> Iterator[Done]:
        begun = runs.begin_part(bench.database, run, number, [scope])
        stamp = Stamp(NOW, run.run_id, batch=number * 1_000_000)
        yield from job.batches(bench.database, [scope], stamp, SMALL)
        runs.finish_part(bench.database, begun, "succeeded")

    first, second = part(1, "s"), part(2, "t")
    yielded = 0
    while (pair := (next(first, None), next(second, None))) != (None, None):
        yielded += sum(done is not None for done in pair)
    assert yielded > 4
    for _ in part(3, "u"):
        pass

    assert journal(bench.beside, run.run_id) == planned == {job.done: 36, job.kept: 36}


def found_by(counts: Sequence[tuple[str, str | None, int]]) -> Counter[str]:
    total: Counter[tuple[str, str | None]] = Counter()
    for arm, cause, rows in counts:
        total[arm, cause] += rows
    return named(total)


def test_turns_count_once_what_both_arms_and_every_guard_of_reap_leave(bench: Bench) -> None:
    """Rows whose times say nothing, fresh flips of both arms, and what a breaker keeps."""
    job = Reap()
    hour = 3_600_000
    policy = RetentionPolicy(max_age_ms=hour, keep=2, stale_running_max_age_ms=3 * hour)
    for scope in ("s", "t"):
        for ms_ago, prefix in ((2 * hour, "old"), (hour // 2, "young")):
            at: dict[str, Any] = {"settled_at": NOW - ms_ago, "updated_at": NOW - ms_ago}
            job.place(bench.beside, scope, *numbered(f"{prefix} a", 4), due=False, **at)
            job.place(bench.beside, scope, *numbered(f"{prefix} b", 12), **at)
            at["settled_at"] = None
            job.place(bench.beside, scope, *numbered(f"{prefix} unsettled a", 2), due=False, **at)
            job.place(bench.beside, scope, *numbered(f"{prefix} unsettled b", 3), **at)
        job.place(bench.beside, scope, *numbered("future", 5), settled_at=NOW + hour)
    policies = [("s", policy), ("t", policy)]

    def run_with(guards: Guards) -> tuple[Counter[str], Counter[str], int]:
        with bench.database.transaction(read_only=True, snapshot=True) as tx:
            found = preview_reap(tx, policies, NOW, guards)
        planned = found_by([(arm, cause, b.rows) for (_, arm, cause), b in found.items()])
        run_id, count = turns(
            bench,
            "reap",
            ["s", "t"],
            lambda stamp: reap(bench.database, policies, stamp, SMALL, guards=guards),
        )
        return planned, journal(bench.beside, run_id), count

    planned, counted, count = run_with(Guards(breaker_rows=7))
    assert {*planned} == {
        *("max_age", "skipped/breaker", "skipped/fresh_flip", "skipped/implausible_time")
    }
    assert planned["max_age"] == 14
    # A run comes to fewer of the fresh flips where a breaker opens.
    assert counted["skipped/fresh_flip"] <= planned["skipped/fresh_flip"]
    for each in (planned, counted):
        del each["skipped/fresh_flip"]
    assert counted == planned
    assert count > 2

    planned, counted, count = run_with(Guards().without(["breakers"]))
    assert counted == planned
    assert planned["keep"] > 0
    assert planned["skipped/fresh_flip"] > 12
    assert count > 3


def test_turns_count_once_what_the_breaker_of_a_flip_keeps(bench: Bench) -> None:
    """The turn that opens it counts what is due by then, and the next ones the same rows."""
    flip = next(job for job in JOBS if job.name == "flip_stale_running")
    for scope in ("s", "t"):
        flip.place(bench.beside, scope, *numbered("a", 3), due=False)
        flip.place(bench.beside, scope, *numbered("b", 30))
    guards = Guards(breaker_rows=12).without(["outage", "plausible-times"])
    ages = [("s", 1000), ("t", 1000)]
    with bench.database.transaction(read_only=True, snapshot=True) as tx:
        found = preview_flip(tx, ages, NOW, guards)
    planned = found_by(
        [("flipped" if c is None else "skipped", c, b.rows) for (_, c), b in found.items()]
    )
    assert planned == {"flipped": 24, "skipped/breaker": 36, "skipped/sighting": 6}

    run_id, count = turns(
        bench,
        "flip_stale_running",
        ["s", "t"],
        lambda stamp: flip_stale_running(bench.database, ages, stamp, SMALL, guards=guards),
    )

    assert count > 2
    counted = journal(bench.beside, run_id)
    assert counted["flipped"] == planned["flipped"]
    assert counted["skipped/sighting"] == planned["skipped/sighting"]
    assert counted["skipped/breaker"] == planned["skipped/breaker"]
