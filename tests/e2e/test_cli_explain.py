"""`explain`: what becomes of one row and why, by the same dry runs that the jobs have."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from store.database import Database
from store.records import STALE_RUNNING_REAP_ATTRIBUTION
from tests.e2e.command_line import CommandLine
from tests.e2e.placed import LONG_AGO, Ledger

HOUR = 3_600_000
DAY = 24 * HOUR
POLICY = """
undo_window = "1d"
[defaults]
max_age = "30d"
stale_running_max_age = "1h"
stale_claim_max_age = "15m"
[[override]]
match = "kept/*"
max_age = "off"
keep = 1
"""


@pytest.fixture
def ledger(plain_ledger: tuple[str, Database]) -> Iterator[Ledger]:
    with closing(Ledger(plain_ledger[0])) as ledger:
        yield ledger


@pytest.fixture
def cli(ledger: Ledger, tmp_path: Path) -> CommandLine:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY, encoding="utf-8")
    return CommandLine(ledger.url, MAINT_POLICY_FILE=str(file))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def job(explained: dict[str, Any], name: str = "reap") -> dict[str, Any]:
    [found] = [each for each in explained["jobs"] if each["job"] == name]
    return found  # type: ignore[no-any-return]


def test_a_finished_row_whose_time_has_come(cli: CommandLine, ledger: Ledger) -> None:
    """By which rule of which file, and that nothing is in the way; content is nobody's business."""
    ledger.finished("a")

    shown = cli.run("explain", "s", "a")
    told = cli.json("explain", "s", "a")

    assert shown.code == 0
    first, *lines = shown.stdout.splitlines()
    assert first == (
        "a of s: reap is to delete it, for its age (max_age): its next run does, unless somebody "
        "writes the row before"
    )
    assert "policy (policy.toml):" in lines
    assert "  max_age = 30d, from defaults" in lines
    assert (job(told)["now"], job(told)["in_the_way"]) == ({"arm": "max_age", "cause": None}, [])
    assert told["row"]["status"] == "completed"
    assert "content" not in told["row"]
    assert "wrote the report" not in shown.stdout


def test_a_finished_row_whose_time_is_to_come(cli: CommandLine, ledger: Ledger) -> None:
    """The first millisecond at which the dry run names it."""
    settled_at = now_ms() - DAY
    ledger.finished("a", settled_at=settled_at)

    told = cli.json("explain", "s", "a")

    assert job(told)["now"] is None
    assert job(told)["earliest_at"] == job(told)["due_at"] == settled_at + 30 * DAY + 1
    assert told["verdict"].startswith("reap is to delete it, for its age (max_age), not before 20")


def test_a_row_that_keep_leaves_and_one_too_many(cli: CommandLine, ledger: Ledger) -> None:
    """By the override, whose file and number are named; `max_age` is off there."""
    ledger.finished("old", "new", scope="kept/x")

    assert "among the newest that `keep` leaves" in cli.run("explain", "kept/x", "new").stdout
    told = cli.json("explain", "kept/x", "old")

    assert job(told)["then"] == {"arm": "keep", "cause": None}
    [rule] = [rule for rule in told["policy"]["rules"] if rule["field"] == "keep"]
    assert rule["source"] == 'override "kept/*" (policy.toml, override 1)'


def test_a_held_row(cli: CommandLine, ledger: Ledger) -> None:
    """Each hold is named with its end; the row goes when the last of them is over."""
    ledger.finished("a")
    first = cli.json("holds", "place", "s", "a", "--reason", "case 1", "--until", "1d")
    second = cli.json("holds", "place", "s", "--reason", "case 2", "--until", "2d")

    told = cli.json("explain", "s", "a")

    assert job(told)["now"] == {"arm": "skipped", "cause": "hold"}
    assert [each["until"] for each in job(told)["in_the_way"]] == [
        first["ends_at"],
        second["ends_at"],
    ]
    assert job(told)["earliest_at"] == second["ends_at"]
    third = cli.json("holds", "place", "s", "a", "--reason", "case 3")["id"]
    shown = cli.run("explain", "s", "a").stdout
    assert f"for its age (max_age) now, but hold {third} lies on it until it is released" in shown
    assert "(case 3); `sema-maintenance holds release" in shown
    assert job(cli.json("explain", "s", "a"))["earliest_at"] is None


def test_a_paused_job(cli: CommandLine, ledger: Ledger) -> None:
    """Who paused it and why, and what lets it go on."""
    ledger.finished("a")
    cli.run("pause", "reap", "--scope", "s", "--reason", "restore under way")

    shown = cli.run("explain", "s", "a").stdout

    assert "(restore under way); `sema-maintenance resume reap --scope 's'` lets it go on" in shown


def test_a_scope_with_an_open_breaker(cli: CommandLine, ledger: Ledger) -> None:
    ledger.finished("a")
    ledger.do(
        "insert into maintenance.breakers (job, scope, reason, opened_at, detail)"
        " values ('reap', 's', 'rows', 1, 'more were due')"
    )

    told = cli.json("explain", "s", "a")

    assert job(told)["now"] == {"arm": "skipped", "cause": "breaker"}
    assert job(told)["acts_at"] == told["now"]
    assert job(told)["earliest_at"] is None
    assert "--override breakers" in cli.run("explain", "s", "a").stdout


def test_a_fresh_flip(cli: CommandLine, ledger: Ledger) -> None:
    """Its writer may correct it for a stale age; then it goes, for it settled long ago."""
    flipped_at = now_ms() - 10_000
    ledger.agent(
        "a",
        status="failed",
        updated_at=flipped_at,
        settled_at=flipped_at,
        content={"error": STALE_RUNNING_REAP_ATTRIBUTION},
    )

    told = cli.json("explain", "s", "a", "--policy", str(_short(cli)))

    assert job(told)["now"] == {"arm": "skipped", "cause": "fresh_flip"}
    assert job(told)["due_at"] == told["now"]
    assert job(told)["earliest_at"] == flipped_at + HOUR + 1


def _short(cli: CommandLine) -> Path:
    """A policy under which everything finished is due at once."""
    file = Path(cli.settings["MAINT_POLICY_FILE"]).with_name("short.toml")
    file.write_text(
        'allow_short_retention = true\n[defaults]\nmax_age = "1s"\nstale_running_max_age = "1h"\n',
        encoding="utf-8",
    )
    return file


@pytest.mark.parametrize("settled_at", [1, LONG_AGO * 1000])
def test_a_time_that_cannot_be(cli: CommandLine, ledger: Ledger, settled_at: int) -> None:
    ledger.finished("a", settled_at=settled_at)

    told = cli.json("explain", "s", "a")

    assert job(told)["now"] == {"arm": "skipped", "cause": "implausible_time"}
    assert "has its writer mend" not in told["verdict"]
    assert "settled before 2015 or in the future" in told["verdict"]


def test_a_silent_row(cli: CommandLine, ledger: Ledger) -> None:
    """It is heard of by its writer, and must be seen unmoved before it is failed."""
    silent_since = now_ms() - 30 * 60_000
    ledger.running("a", updated_at=silent_since)
    ledger.running("live", updated_at=now_ms())

    told = cli.json("explain", "s", "a")
    found = job(told, "flip_stale_running")

    assert found["now"] is None
    assert (found["due_at"], found["to_be_seen"]) == (silent_since + HOUR + 1, True)
    assert found["acts_at"] == silent_since + HOUR + 1
    assert found["then"]["arm"] == "flipped"
    shown = cli.run("explain", "s", "a").stdout
    assert "last heard" in shown
    assert "alive" not in shown


def test_a_row_that_everybody_s_silence_protects(cli: CommandLine, ledger: Ledger) -> None:
    """What holds every flip is named, and how it is lifted."""
    ledger.running("a", updated_at=now_ms() - 2 * HOUR)

    told = cli.json("explain", "s", "a")
    found = job(told, "flip_stale_running")

    assert found["now"]["cause"] in {"outage", "silence"}
    assert found["earliest_at"] is None
    assert "--override outage" in found["in_the_way"][0]["what"]


def test_a_row_that_waits_for_a_person(cli: CommandLine, ledger: Ledger) -> None:
    """Its approval is shown; it fails when that expires, at the millisecond."""
    expires_at = now_ms() + HOUR
    ledger.parked("a", "t1")
    ledger.checkpoint("t1", expires_at=expires_at)
    ledger.parked("b", "t2")
    ledger.checkpoint("t2")

    told = cli.json("explain", "s", "a")
    forever = cli.run("explain", "s", "b")

    found = job(told, "reconcile_parked")
    assert told["checkpoint"]["status"] == "pending"
    assert found["earliest_at"] == expires_at
    assert found["then"] == {"arm": "failed", "cause": "checkpoint_expired"}
    assert "nothing is to become of it: its approval can still be given" in forever.stdout


def test_a_row_whose_approval_is_missing(cli: CommandLine, ledger: Ledger) -> None:
    """It must be seen missing for a minute; where every approval is missing nothing is done."""
    ledger.parked("a", "gone")

    nothing = cli.run("explain", "s", "a")
    ledger.checkpoint("another")
    told = cli.json("explain", "s", "a")

    assert "reconcile-parked refuses to do anything: there is not one checkpoint" in nothing.stdout
    found = job(told, "reconcile_parked")
    assert found["now"] == {"arm": "skipped", "cause": "sighting"}
    assert found["then"] == {"arm": "failed", "cause": "checkpoint_missing"}
    assert found["acts_at"] == told["now"] + 60_000


def test_without_a_policy_nothing_becomes_of_it(cli: CommandLine, ledger: Ledger) -> None:
    ledger.finished("a")

    shown = CommandLine(ledger.url).run("explain", "s", "a")

    assert shown.stdout.startswith(
        "a of s: nothing is to become of it: the policy (no policy file) sets no max_age and keep "
        "here"
    )


def test_a_row_that_was_deleted_and_is_kept(cli: CommandLine, ledger: Ledger) -> None:
    """When, by which run, and until when it can be restored; then that it was."""
    ledger.finished("a")
    ledger.session("transcript of a")
    run = cli.json("reap", "--scope", "s")

    told = cli.json("explain", "s", "a")
    shown = cli.run("explain", "s", "a")

    assert told["row"] is None
    assert told["left"][0]["run_id"] == run["run_id"]
    assert shown.stdout.splitlines()[0].startswith("a of s: reap deleted it on 20")
    assert "it can be restored until 20" in shown.stdout
    cli.run("restore", "s", "a")
    back = cli.run("explain", "s", "a")
    assert "restore (hold " in back.stdout
    assert "(restored); `sema-maintenance holds release" in back.stdout


def test_a_row_that_is_gone_for_good(cli: CommandLine, ledger: Ledger) -> None:
    """What the journal knows of its scope; that nothing is known of the row is no success."""
    ledger.agent("a", settled_at=LONG_AGO)
    ledger.finished("b")
    run = cli.json("reap", "--scope", "s", "--max-age", "30d")
    ledger.do("delete from maintenance.session_releases")

    shown = cli.run("explain", "s", "a")

    assert shown.code == 1
    assert f": 2 by max_age, in run {run['run_id']}" in shown.stdout
    assert shown.problems == ["nothing is known of an agent 'a' in scope 's'"]


def test_a_scope_that_is_misspelt(cli: CommandLine, ledger: Ledger) -> None:
    """It is not said where else such a row is: that is another tenant's."""
    ledger.finished("a")

    shown = cli.run("explain", "S", "a")

    assert shown.code == 1
    assert "scope 'S' holds no agents" in shown.stderr
    assert "'s'" not in shown.stdout + shown.stderr


@pytest.mark.parametrize("at", [2**63 - 1, -(2**63), 1_796_000_000_000_000_000])
@pytest.mark.parametrize("status", ["running", "parked", "completed"])
def test_times_of_any_size(cli: CommandLine, ledger: Ledger, status: str, at: int) -> None:
    """A slip of somebody's units is what a person asks about."""
    ledger.checkpoint("t", expires_at=at, updated_at=at)
    settled = at if status == "completed" else None
    parked = {} if status != "parked" else {"parked_checkpoint_token": "t", "parked_at": at}
    ledger.agent("a", status=status, updated_at=at, settled_at=settled, **parked)

    assert cli.run("explain", "s", "a").code == 0
    assert cli.json("explain", "s", "a")["row"]["status"] == status


def test_a_status_that_this_release_does_not_know(cli: CommandLine, ledger: Ledger) -> None:
    """A ledger of a newer server has no such check."""
    check = "background_agents_status_check"
    [kept] = ledger.query(
        f"select pg_get_constraintdef(oid) as text from pg_constraint where conname = '{check}'"
    )
    ledger.do(f"alter table public.background_agents drop constraint {check}")
    try:
        ledger.agent("a", status="dreaming")
        shown = cli.run("explain", "s", "a").stdout
    finally:
        ledger.do(
            "delete from public.background_agents;"
            f" alter table public.background_agents add constraint {check} {kept['text']}"
        )

    assert "no job of this release touches a row of status dreaming" in shown
