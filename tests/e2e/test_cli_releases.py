"""The outbox by hand: listed without any transcript's content, and armed again on record."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from store.database import Database
from tests.e2e.command_line import CommandLine
from tests.e2e.placed import LONG_AGO, Ledger

ALL = ("--all-scopes", "--yes")


@pytest.fixture
def ledger(plain_ledger: tuple[str, Database]) -> Iterator[Ledger]:
    with closing(Ledger(plain_ledger[0])) as ledger:
        yield ledger


@pytest.fixture
def cli(ledger: Ledger) -> CommandLine:
    return CommandLine(ledger.url)


def queue(ledger: Ledger, session: str, state: str, scope: str = "s", error: str = "") -> None:
    ledger.do(
        "insert into maintenance.session_releases (scope, session_id, handle, settled_at, run_id,"
        " queued_at, not_before, state, attempts, last_error)"
        f" values ('{scope}', '{session}', 'a', {LONG_AGO}, gen_random_uuid(), 1, 2, '{state}', 8,"
        f" nullif('{error}', ''))"
    )


def test_the_list_says_what_became_of_each_entry_and_why(cli: CommandLine, ledger: Ledger) -> None:
    queue(ledger, "waits", "pending")
    queue(ledger, "failed", "dead", error="the transcript is held by a writer")
    queue(ledger, "written", "suspect", scope="t")

    listed = cli.json("releases", "list")
    dead = cli.json("releases", "list", "--state", "dead", "--scope", "s")
    shown = cli.run("releases", "list")

    assert [each["session_id"] for each in listed] == ["written", "failed", "waits"]
    [entry] = dead
    assert entry == {
        "id": entry["id"],
        "scope": "s",
        "session_id": "failed",
        "handle": "a",
        "state": "dead",
        "attempts": 8,
        "settled_at": LONG_AGO,
        "queued_at": 1,
        "not_before": 2,
        "last_error": "the transcript is held by a writer",
    }
    header, *rows = shown.stdout.splitlines()
    assert header.split()[:5] == ["SCOPE", "SESSION", "AGENT", "STATE", "ATTEMPTS"]
    assert rows[1].endswith("the transcript is held by a writer")
    assert len(rows) == 3


def test_a_list_that_was_cut_says_so_and_an_empty_one_too(cli: CommandLine, ledger: Ledger) -> None:
    assert cli.run("releases", "list").stdout == "no such entries\n"
    for number in range(3):
        queue(ledger, f"talk {number}", "dead")

    cut = cli.run("releases", "list", "--limit", "2")

    assert len(cut.stdout.splitlines()) == 3
    assert "only the newest 2 entries are shown" in cut.stderr


def test_what_failed_for_the_last_time_is_told_apart(cli: CommandLine, ledger: Ledger) -> None:
    ledger.session("last")
    ledger.session("first")
    queue(ledger, "last", "pending")
    queue(ledger, "first", "pending")
    ledger.do(
        "update maintenance.session_releases set attempts = 0 where session_id = 'first';"
        " create function refuse() returns trigger language plpgsql as"
        " $$begin raise 'no'; end$$;"
        " create trigger refuse before delete on public.agent_sessions"
        " for each row execute function refuse()"
    )

    try:
        ended = cli.run("release-sessions", *ALL)
    finally:
        ledger.do("drop trigger refuse on public.agent_sessions; drop function refuse")

    assert ended.code == 1
    assert "1 release failed and is tried again; `releases list` says why" in ended.stderr
    assert (
        "1 release failed for the last time and is dead; `releases list` says why, and "
        "`sema-maintenance releases rearm --state dead` lets them be tried again" in ended.stderr
    )


def test_dead_entries_are_armed_again_on_record_and_released_then(
    cli: CommandLine, ledger: Ledger
) -> None:
    ledger.session("talk")
    queue(ledger, "talk", "dead", error="it failed")
    queue(ledger, "other", "dead", scope="t")

    armed = cli.json("releases", "rearm", "--state", "dead", "--scope", "s")

    assert armed == {"state": "dead", "rearmed": 1, "stopped_early": False}
    run = ledger.last_run()
    assert (run["job"], run["state"]) == ("rearm_releases", "succeeded")
    assert "@" in run["requested_by"]
    assert ledger.journal()["rearm_releases/rearmed/dead"] == 1
    [shown, *_] = cli.json("history")
    assert (shown["job"], shown["report"]) == ("rearm_releases", {"rearmed/dead": 1})
    assert shown["asked"] == {"scopes": ["s"], "policy": None, "flags": {"state": "dead"}}
    assert cli.json("release-sessions", *ALL)["report"] == {"released": 1}
    assert ledger.transcripts("s") == []
    assert [row["state"] for row in ledger.query("select * from maintenance.session_releases")] == [
        "dead"
    ]


def test_a_suspect_transcript_that_a_person_accepts_is_released(
    cli: CommandLine, ledger: Ledger
) -> None:
    ledger.session("talk", updated_at=LONG_AGO + 5)
    queue(ledger, "talk", "pending")
    assert cli.json("release-sessions", *ALL)["report"] == {"released": 0, "suspect": 1}

    shown = cli.run("releases", "rearm", "--state", "suspect", "--scope", "s", "--session", "talk")

    assert shown.stdout == "1 suspect entry is due again\n"
    assert cli.json("release-sessions", *ALL)["report"] == {"released": 1}


def test_every_scope_is_armed_again_where_that_is_said(cli: CommandLine, ledger: Ledger) -> None:
    for scope in ("s", "t"):
        queue(ledger, "talk", "dead", scope=scope)

    assert cli.json("releases", "rearm", "--state", "dead", *ALL)["rearmed"] == 2
    assert cli.json("releases", "rearm", "--state", "dead", *ALL)["rearmed"] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--scope", "s"), "--state"),
        (("--state", "pending", "--scope", "s"), "'pending' is not one of"),
        (("--state", "dead"), "no scope is named"),
        (("--state", "dead", "--scope", "s", "--all-scopes"), "contradict each other"),
        (("--state", "dead", "--all-scopes"), "--all-scopes needs --yes"),
        (("--state", "dead", *ALL, "--session", "x"), "--session needs the --scope"),
        (("--state", "dead", "--scope", ""), "a scope cannot be empty"),
    ],
)
def test_what_was_asked_wrongly_changes_nothing(
    cli: CommandLine, ledger: Ledger, arguments: tuple[str, ...], said: str
) -> None:
    queue(ledger, "talk", "dead")
    before = ledger.tables()

    assert said in cli.refusal("releases", "rearm", *arguments)

    assert ledger.tables() == before
