"""The jobs by hand: what they are told by flags and files, and what they say they did."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from store.database import Database
from store.records import STALE_RUNNING_REAP_ATTRIBUTION
from tests.e2e.command_line import AT_ONCE, EVERY_FINISHED, UNSEEN, CommandLine
from tests.e2e.placed import Ledger

HOUR = 3_600_000
DAY = 24 * HOUR
OVER_ALL = ("--all-scopes", "--yes")


@pytest.fixture
def ledger(plain_ledger: tuple[str, Database]) -> Iterator[Ledger]:
    with closing(Ledger(plain_ledger[0])) as ledger:
        yield ledger


@pytest.fixture
def cli(ledger: Ledger) -> CommandLine:
    return CommandLine(ledger.url)


def policy_file(folder: Path, text: str) -> str:
    path = folder / "policy.toml"
    path.write_text(text)
    return str(path)


def test_reap_deletes_what_the_flags_name_and_queues_its_transcripts(
    cli: CommandLine, ledger: Ledger
) -> None:
    now = ledger.now()
    ledger.finished("old", settled_at=now - 3 * DAY)
    ledger.finished("young", settled_at=now - DAY)
    ledger.running("silent for ever", updated_at=1_000)

    run = cli.json("reap", "--scope", "s", "--max-age", "2d")

    assert run["report"] == {"max_age": 1, "keep": 0}
    assert (run["state"], run["more"], run["error"]) == ("succeeded", False, None)
    assert ledger.handles() == ["silent for ever", "young"]
    assert ledger.queued() == [("old", "transcript of old")]
    assert ledger.journal() == {"reap/max_age": 1, "reap/run/succeeded": 1}


def test_both_arms_of_a_reap(cli: CommandLine, ledger: Ledger) -> None:
    now = ledger.now()
    ledger.finished("a", settled_at=now - 3 * DAY)
    ledger.finished("b", "c", "d", settled_at=now - DAY)

    ended = cli.run("reap", "--scope", "s", "--max-age", "48h", "--keep", "2.0")

    assert ended.code == 0
    assert ended.stdout.startswith("reap succeeded in ")
    assert ended.stdout.endswith(": max_age 1, keep 1\n")
    assert ledger.handles() == ["c", "d"]


def test_only_the_named_scopes_are_worked_on(cli: CommandLine, ledger: Ledger) -> None:
    for scope in ("s", "t", "u"):
        ledger.finished("a", scope=scope)

    run = cli.json("reap", "--scope", "s", "--scope", "u", "--scope", "s", *EVERY_FINISHED)

    assert run["report"]["keep"] == 2
    assert [ledger.handles(scope) for scope in ("s", "t", "u")] == [[], ["a"], []]


def test_all_scopes_means_every_one(cli: CommandLine, ledger: Ledger) -> None:
    for scope in ("s", "t", "u"):
        ledger.finished("a", scope=scope)

    run = cli.json("reap", *OVER_ALL, *EVERY_FINISHED)

    assert run["report"]["keep"] == 3
    assert [ledger.handles(scope) for scope in ("s", "t", "u")] == [[], [], []]


def test_without_flags_the_policy_file_decides_scope_by_scope(
    cli: CommandLine, ledger: Ledger, tmp_path: Path
) -> None:
    for scope in ("s", "t/1"):
        ledger.finished("a", "b", scope=scope)
    text = '[defaults]\nkeep = 1\n[[override]]\nmatch = "t/*"\nkeep = "off"\n'

    run = cli.json("reap", *OVER_ALL, MAINT_POLICY_FILE=policy_file(tmp_path, text))

    assert run["report"] == {"max_age": 0, "keep": 1}
    assert (ledger.handles("s"), ledger.handles("t/1")) == (["b"], ["a", "b"])


def test_flags_take_the_place_of_the_files_ages_but_not_of_its_release_delay(
    cli: CommandLine, ledger: Ledger, tmp_path: Path
) -> None:
    ledger.finished("a", "b", "c")
    file = policy_file(tmp_path, 'release_delay = "7m"\n[defaults]\nmax_age = "1h"\n')

    run = cli.json("reap", "--scope", "s", "--keep", "2", "--policy", file)

    assert run["report"] == {"max_age": 0, "keep": 1}
    [release] = ledger.query(
        "select not_before - queued_at as delay from maintenance.session_releases"
    )
    assert release["delay"] == 7 * 60_000


def test_flags_of_a_reap_leave_the_guard_of_fresh_flips_the_files_stale_age(
    cli: CommandLine, ledger: Ledger, tmp_path: Path
) -> None:
    """Flipped 20 minutes ago, of two hours; one scope has an age of its own, another has none."""
    now = ledger.now()
    for scope in ("s", "t", "u"):
        flipped = {"error": STALE_RUNNING_REAP_ATTRIBUTION}
        settled = {"status": "failed", "updated_at": now - HOUR // 3, "settled_at": now - HOUR // 3}
        ledger.agent("flipped", scope=scope, content=flipped, **settled)
        ledger.finished("newer", scope=scope, settled_at=now - 1000)
    file = policy_file(
        tmp_path,
        '[defaults]\nmax_age = "90d"\nstale_running_max_age = "2h"\n'
        '[[override]]\nmatch = "t"\nstale_running_max_age = "10m"\n'
        '[[override]]\nmatch = "u"\nstale_running_max_age = "off"\n',
    )

    run = cli.json("reap", *OVER_ALL, "--keep", "1", MAINT_POLICY_FILE=file)

    assert run["report"] == {"max_age": 0, "keep": 2, "skipped/fresh_flip": 1}
    assert ledger.handles("s") == ["flipped", "newer"]


def test_flip_by_hand_says_that_its_hold_ends_with_the_schedules_ticks(
    cli: CommandLine, ledger: Ledger
) -> None:
    """The stale age is so short that the server is up for longer: it is not held by that."""
    ledger.running("silent")

    ended = cli.run("flip-stale-running", *OVER_ALL, "--stale-after", "1ms", "--override", "floors")

    assert "skipped/silence 1" in ended.stdout
    [note] = [line for line in ended.stderr.splitlines() if line.startswith("note: ")]
    assert note.startswith("note: 1 row passed over (silence): no running row anywhere was renewed")
    assert "only the schedule's own ticks end such a hold" in note
    assert note.endswith("(--override outage)")


@pytest.mark.parametrize("job", ["reap", "flip-stale-running"])
def test_a_policy_that_names_nothing_for_a_job_does_nothing_and_says_so(
    cli: CommandLine, ledger: Ledger, tmp_path: Path, job: str
) -> None:
    ledger.finished("a")
    ledger.running("b")
    before = ledger.tables()
    # Neither job is named for the scope, though an override elsewhere does.
    text = (
        '[defaults]\nstale_claim_max_age = "15m"\n'
        '[[override]]\nmatch = "t"\nmax_age = "1h"\nstale_running_max_age = "15m"\n'
    )

    ended = cli.run(job, "--scope", "s", MAINT_POLICY_FILE=policy_file(tmp_path, text))

    assert (ended.code, ended.problems) == (0, [])
    assert "policy.toml) sets no " in ended.stdout
    assert "so nothing was done" in ended.stdout
    assert ledger.tables() == before


def test_without_any_policy_nothing_is_deleted(cli: CommandLine, ledger: Ledger) -> None:
    ledger.finished("a")
    before = ledger.tables()

    document = cli.json("reap", *OVER_ALL)

    assert document["state"] == "nothing_asked"
    assert "(no policy file) sets no max_age and no keep for any scope" in document["reason"]
    assert ledger.tables() == before


def test_flip_by_hand(cli: CommandLine, ledger: Ledger) -> None:
    now = ledger.now()
    ledger.running("silent", updated_at=now - HOUR)
    ledger.running("heard", updated_at=now - 60_000)

    held = cli.json("flip-stale-running", *OVER_ALL, "--stale-after", "15m")
    run = cli.json("flip-stale-running", *OVER_ALL, "--stale-after", "15m", *AT_ONCE)

    assert held["report"] == {"flipped": 0, "skipped/outage": 1}
    assert run["report"] == {"flipped": 1}
    assert run["overrides"] == ["sightings", "outage"]
    assert (ledger.brief("silent"), ledger.brief("heard")) == (("failed", 2), ("running", 1))


def test_reconcile_without_a_lease_fails_only_what_its_checkpoint_says(
    cli: CommandLine, ledger: Ledger
) -> None:
    ledger.parked("gone", "no such token")
    ledger.parked("abandoned", "asked", park_claim_id="claim")
    ledger.checkpoint("asked")

    waits = cli.json("reconcile-parked", "--scope", "s")
    run = cli.json("reconcile-parked", "--scope", "s", *UNSEEN)

    assert waits["report"] == {"skipped/sighting": 1}
    assert run["report"] == {"failed/checkpoint_missing": 1}
    assert (ledger.brief("gone"), ledger.brief("abandoned")) == (("failed", 2), ("parked", 1))


def test_reconcile_with_a_lease_undoes_abandoned_claims(cli: CommandLine, ledger: Ledger) -> None:
    ledger.claimed("abandoned", "asked", updated_at=ledger.now() - HOUR)
    ledger.checkpoint("asked")

    run = cli.json("reconcile-parked", "--scope", "s", "--stale-claim-after", "15m")

    assert run["report"] == {"rolled_back/stale_claim": 1}
    assert ledger.brief("abandoned") == ("parked", 2)


def test_release_by_hand_after_a_reap(cli: CommandLine, ledger: Ledger, tmp_path: Path) -> None:
    ledger.finished("a", "b")
    ledger.finished("a", scope="t")
    for scope in ("s", "t"):
        ledger.session("transcript of a", scope=scope)
    file = policy_file(tmp_path, 'release_delay = "0s"\n')
    cli.json("reap", *OVER_ALL, *EVERY_FINISHED, MAINT_POLICY_FILE=file)

    planned = cli.json("release-sessions", *OVER_ALL, "--dry-run")
    run = cli.json("release-sessions", "--scope", "s")

    assert {(p["scope"], p["arm"], p["rows"]) for p in planned["planned"]} == {
        ("s", "released", 1),
        ("s", "absent", 1),
        ("t", "released", 1),
    }
    assert run["report"] == {"released": 1, "absent": 1}
    assert (ledger.transcripts("s"), ledger.transcripts("t")) == ([], ["transcript of a"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("reap", "--max-age", "1h", "--keep", "1"),
        ("flip-stale-running", "--stale-after", "15m", *AT_ONCE),
        ("reconcile-parked", "--stale-claim-after", "15m", *UNSEEN),
        ("release-sessions",),
    ],
    ids=lambda arguments: str(arguments[0]),
)
def test_a_dry_run_writes_nothing_at_all(
    cli: CommandLine, ledger: Ledger, arguments: tuple[str, ...]
) -> None:
    ledger.finished("a", "b")
    ledger.running("c")
    ledger.parked("d", "gone")
    ledger.checkpoint("another")
    ledger.do(
        "insert into maintenance.session_releases"
        " (scope, session_id, handle, settled_at, run_id, queued_at, not_before)"
        " values ('s', 'x', 'y', 1, gen_random_uuid(), 1, 1)"
    )
    before = ledger.tables()

    ended = cli.run(*arguments, "--all-scopes", "--dry-run")
    document = cli.json(*arguments, "--all-scopes", "--dry-run")

    assert ended.code == 0
    assert "a dry run, so nothing was done" in ended.stdout
    assert document["rows"] == sum(each["rows"] for each in document["planned"]) > 0
    assert ledger.tables() == before


def test_a_run_by_hand_is_on_record_with_who_and_what_was_lifted(
    cli: CommandLine, ledger: Ledger
) -> None:
    ledger.finished("a")

    cli.json("reap", "--scope", "s", "--keep", "5", "--override", "floors", "--override", "all")

    run = ledger.last_run()
    assert (run["job"], run["state"], run["slot"]) == ("reap", "succeeded", None)
    assert run["overrides"] == ["floors", "all"]
    user, _, host = run["requested_by"].partition("@")
    assert user
    assert host


def test_a_scope_without_agents_is_doubted(cli: CommandLine, ledger: Ledger) -> None:
    ledger.finished("a")

    ended = cli.run("reap", "--scope", "tenant/acem", "--scope", "s", "--keep", "1")

    assert ended.code == 0
    assert "note: scope 'tenant/acem' holds no agents" in ended.stderr
    assert "'s'" not in ended.stderr


def test_a_failing_run_says_why_and_is_not_a_success(cli: CommandLine, ledger: Ledger) -> None:
    """Something in the database refuses the delete: exit 1, and the row is still there."""
    ledger.finished("a")
    with ledger.altered(
        "create function public.refuse() returns trigger language plpgsql as"
        " $$ begin raise exception 'rows of this ledger stay'; end $$;"
        " create trigger refuse before delete on public.background_agents"
        " for each row execute function public.refuse()",
        "drop trigger refuse on public.background_agents; drop function public.refuse()",
    ):
        ended = cli.run("reap", "--scope", "s", *EVERY_FINISHED, "--json")

    assert ended.code == 1
    [problem] = ended.problems
    assert (
        problem == "reap was not done in full: scope s: Postgres reported: rows of this ledger stay"
    )
    assert json.loads(ended.stdout)["state"] == "partial"
    assert ledger.handles() == ["a"]
    assert ledger.last_run()["state"] == "partial"


def test_by_hand_a_budget_ends_nothing(cli: CommandLine, ledger: Ledger) -> None:
    """Deletes of 300 ms each against a budget of 1 s, one row a batch: it goes on to the end."""
    ledger.finished(*(f"a{n}" for n in range(6)))
    with ledger.altered(
        "create function public.dawdle() returns trigger language plpgsql as"
        " $$ begin perform pg_sleep(0.3); return old; end $$;"
        " create trigger dawdle before delete on public.background_agents"
        " for each row execute function public.dawdle()",
        "drop trigger dawdle on public.background_agents; drop function public.dawdle()",
    ):
        run = cli.json(
            *("reap", "--scope", "s", *EVERY_FINISHED),
            MAINT_JOB_BUDGET="1s",
            MAINT_ROWS_PER_BATCH="1",
        )

    assert (run["more"], run["report"]["keep"]) == (False, 6)
    assert ledger.handles() == []


def test_the_database_is_named_beside_the_results(cli: CommandLine, ledger: Ledger) -> None:
    ledger.finished("a")

    ended = cli.run("reap", "--scope", "s", "--keep", "1")

    [line] = [line for line in ended.stderr.splitlines() if line.startswith("database: ")]
    assert line.endswith(", schema public")
    assert "sema_test_plain_" in line
    assert "database" not in ended.stdout
