"""Holds by hand: placed, listed and released, each on record; whatever is wrong is one sentence."""

import getpass
import re
import socket
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from store.database import Database
from tests.e2e.command_line import EVERY_FINISHED, CommandLine, finished
from tests.e2e.placed import Ledger
from tests.transcript_system import transcript_system
from tests.waiting import wait_until

WHY = ("--reason", "case 4711")
ME = f"{getpass.getuser()}@{socket.gethostname()}"
DAY_MS = 86_400_000


@pytest.fixture
def ledger(plain_ledger: tuple[str, Database]) -> Iterator[Ledger]:
    with closing(Ledger(plain_ledger[0])) as ledger:
        yield ledger


@pytest.fixture
def cli(ledger: Ledger) -> CommandLine:
    return CommandLine(ledger.url)


def test_nothing_lifts_a_hold(cli: CommandLine, ledger: Ledger) -> None:
    """Neither by its name nor with every guard that can be lifted."""
    ledger.finished("a", "b")
    ledger.finished("c", scope="t")
    cli.run("holds", "place", "s", "a", *WHY)
    cli.run("holds", "place", "t", *WHY)
    reap = ("reap", "--keep", "0", "--all-scopes", "--yes", "--override")

    assert "cannot be lifted by anything" in cli.refusal(*reap, "holds")
    planned = cli.json(*reap, "all", "--dry-run")
    ended = cli.json(*reap, "all")

    assert {arm: n for arm, n in ended["report"].items() if n} == {"keep": 1, "skipped/hold": 2}
    assert {(p["scope"], p["arm"], p["cause"]): p["rows"] for p in planned["planned"]} == {
        ("s", "keep", None): 1,
        ("s", "skipped", "hold"): 1,
        ("t", "skipped", "hold"): 1,
    }
    assert (ledger.handles("s"), ledger.handles("t")) == (["a"], ["c"])


def test_a_breaker_is_closed_though_a_row_of_its_scope_is_held(
    cli: CommandLine, ledger: Ledger
) -> None:
    """The row is not due, so nothing that was due is left."""
    ledger.finished("a", "b")
    cli.run("holds", "place", "s", "a", *WHY)
    ledger.do(
        "insert into maintenance.breakers (job, scope, reason, opened_at, detail)"
        " values ('reap', 's', 'rows', 1, 'more were due')"
    )

    ended = cli.run("reap", "--scope", "s", *EVERY_FINISHED, "--override", "breakers")

    assert ended.code == 0
    assert ledger.handles("s") == ["a"]
    assert ledger.query("select * from maintenance.breakers") == []


def test_a_hold_is_placed_listed_and_released_on_record(cli: CommandLine, ledger: Ledger) -> None:
    ledger.finished("a")
    placed = cli.run("holds", "place", "s", "a", *WHY)
    number = re.fullmatch(r"placed hold (\d+) on a of s, until it is released\n", placed.stdout)
    assert number is not None
    until = cli.json("holds", "place", "s", *WHY, "--until", "30d")
    assert (until["is_there"], until["transcripts_leaving"]) == (True, 0)
    assert until["ends_at"] == until["placed_at"] + 30 * DAY_MS

    listed = cli.json("holds", "list", "--scope", "s")
    released = cli.run("holds", "release", number[1], "--reason", "closed")
    shown = cli.run("holds", "list")
    everything = cli.run("holds", "list", "--all")

    assert [(each["handle"], each["placed_by"], each["reason"]) for each in listed] == [
        (None, ME, "case 4711"),
        ("a", ME, "case 4711"),
    ]
    assert released.stdout == f"released hold {number[1]} on a of s\n"
    header, *rows = shown.stdout.splitlines()
    assert header.split() == [
        *("HOLD", "SCOPE", "AGENT", "REASON", "PLACED", "BY", "PLACED", "(UTC)"),
        *("UNTIL", "(UTC)"),
    ]
    assert [row.split()[:3] for row in rows] == [[str(until["id"]), "s", "(all)"]]
    assert f"by {ME}" in everything.stdout.splitlines()[2]
    acts = ledger.query(
        "select actor, action, scope, handle, detail from maintenance.actions order by id"
    )
    assert [(a["actor"], a["action"], a["scope"], a["handle"]) for a in acts] == [
        (ME, "place_hold", "s", "a"),
        (ME, "place_hold", "s", None),
        (ME, "release_hold", "s", "a"),
    ]
    assert acts[2]["detail"] == {
        "hold": int(number[1]),
        "placed_by": ME,
        "placed_for": "case 4711",
        "reason": "closed",
    }


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("2999-01-31", "2999-01-31 00:00:00"),
        ("2999-01-31T12:30Z", "2999-01-31 12:30:00"),
        ("2999-01-31 12:30", "2999-01-31 12:30:00"),
        ("2999-01-31T12:30+02:00", "2999-01-31 10:30:00"),
    ],
)
def test_a_time_is_meant_in_utc(cli: CommandLine, written: str, shown: str) -> None:
    placed = cli.run("holds", "place", "s", *WHY, "--until", written)

    assert placed.stdout.endswith(f" on scope s, until {shown} UTC\n")


def test_what_is_not_there_yet_is_held_with_a_note(cli: CommandLine, ledger: Ledger) -> None:
    ledger.finished("a")

    row = cli.run("holds", "place", "s", "b", *WHY)
    scope = cli.run("holds", "place", "other", *WHY)

    assert (row.code, scope.code) == (0, 0)
    assert "note: the row is not there now; whatever comes under that name is held" in row.stderr
    assert "note: the scope has no row now; whatever comes" in scope.stderr
    ledger.finished("b")
    ended = cli.json("reap", "--scope", "s", *EVERY_FINISHED)
    assert {arm: n for arm, n in ended["report"].items() if n} == {"keep": 1, "skipped/hold": 1}


def test_an_empty_list_and_one_that_was_cut_say_so(cli: CommandLine, ledger: Ledger) -> None:
    assert cli.run("holds", "list").stdout == "no holds\n"
    ledger.finished("a")
    for _ in range(3):
        cli.run("holds", "place", "s", "a", *WHY)

    cut = cli.run("holds", "list", "--limit", "2")

    assert len(cut.stdout.splitlines()) == 3
    assert "only the newest 2 holds are shown" in cut.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("place", "", *WHY), "a scope cannot be empty."),
        (("place", "s", "", *WHY), "handle cannot be empty; leave it out to hold the whole scope"),
        (("place", "s"), "Missing option '--reason'."),
        (("place", "s", "--reason", " "), "reason cannot be empty; say why this is to be kept"),
        (("place", "s", "--reason", "x" * 501), "reason has 501 characters; 500 are the limit"),
        (("place", "s" * 2601, *WHY), "scope is 2601 bytes; an index holds 2600"),
        (("place", "s", "h" * 2600, *WHY), "handle and scope are 2601 bytes together"),
        (("place", "s", *WHY, "--until", "2001-01-01"), "until is not in the future by the data"),
        (("place", "s", *WHY, "--until", "0s"), "a hold of no length holds nothing"),
        (("place", "s", *WHY, "--until", "30"), "'30' is neither a span of time such as 30d nor"),
        (("place", "s", *WHY, "--until", "-1d"), "'-1d' is neither a span of time such as 30d"),
        (("place", "s", *WHY, "--until", "999999999d"), "a hold ends in the year 9999 at the la"),
        (("place", "s", *WHY, "--until", "12345-01-01"), "a hold ends in the year 9999 at the la"),
        (("place", "s", *WHY, "--until", "9999-12-31T23:59-12:00"), "a hold ends in the year 9999"),
        (("place", "s\0", *WHY), "it contains a NUL character, which Postgres cannot store."),
        (("place", "tenant/*", *WHY), "'tenant/*' has no row, and a scope is named in full"),
        (("release", "1", "--reason", "x" * 501), "reason has 501 characters; 500 are the limit"),
        (("release", "first"), "'first' is no number of a hold; `holds list` shows them."),
        (("release", "0"), "'0' is no number of a hold; `holds list` shows them."),
        (("release", "9" * 30), f"'{'9' * 30}' is no number of a hold; `holds list` shows them."),
    ],
    ids=lambda each: " ".join(each)[:40] if isinstance(each, tuple) else "",
)
def test_bad_input_is_one_line(
    cli: CommandLine, ledger: Ledger, arguments: tuple[str, ...], problem: str
) -> None:
    assert problem in cli.refusal("holds", *arguments)
    assert ledger.query("select * from maintenance.holds") == []


def test_a_hold_that_is_not_in_force_cannot_be_released(cli: CommandLine, ledger: Ledger) -> None:
    ledger.do(
        "insert into maintenance.holds (scope, reason, placed_by, placed_at, ends_at, released_by,"
        " released_at) values ('s', 'why', 'ada', 1, 1767225600000, null, null),"
        " ('s', 'why', 'ada', 1, null, 'bob', 1767225600000)"
    )
    over, gone = (row["id"] for row in ledger.query("select id from maintenance.holds order by id"))
    unknown = gone + 1

    for number, problem in (
        (over, f"hold {over} is over by itself since 2026-01-01 00:00:00 UTC"),
        (gone, f"hold {gone} was released by bob at 2026-01-01 00:00:00 UTC"),
        (unknown, f"there is no hold {unknown}; `holds list` shows those in force"),
    ):
        ended = cli.run("holds", "release", str(number))
        assert (ended.code, ended.stdout, ended.problems) == (1, "", [problem])
    assert ledger.query("select * from maintenance.actions") == []


def test_placed_is_said_when_what_was_being_deleted_is_gone(
    cli: CommandLine, ledger: Ledger
) -> None:
    """A real process; a transaction that has begun to delete is still open."""
    ledger.finished("a")
    with psycopg.connect(ledger.url) as deleter:
        deleter.execute(
            "select pg_advisory_xact_lock_shared(hashtextextended('maintenance.holds', 0))"
        )
        with cli.start("holds", "place", "s", *WHY) as process:
            wait_until(
                lambda: bool(
                    ledger.query(
                        "select from pg_stat_activity"
                        f" where {deleter.info.backend_pid} = any (pg_blocking_pids(pid))"
                    )
                ),
                "the placing waits",
            )
            assert process.poll() is None
            assert ledger.query("select * from maintenance.holds") == []
            deleter.rollback()
            ended = finished(process)

    assert ended.code == 0
    assert ended.stdout.startswith("placed hold ")


@pytest.mark.parametrize("known_here", [True, False])
def test_placed_is_said_when_another_system_has_answered(ledger: Ledger, known_here: bool) -> None:
    """What it was asked to delete before is waited for, whatever this process is told of it."""
    ledger.do(
        "insert into maintenance.session_releases (scope, session_id, handle, settled_at, run_id,"
        " queued_at, not_before, claim_id, claimed_until)"
        " select 's', 'talk', 'a', 0, gen_random_uuid(), 0, 0, gen_random_uuid(),"
        " (extract(epoch from now()) * 1000)::bigint + 60000"
    )
    with transcript_system() as system:
        settings = {"MAINT_RELEASE_BACKEND": "http", "MAINT_RELEASE_URL": system.template}
        cli = CommandLine(ledger.url, **(settings if known_here else {}))
        with cli.start("holds", "place", "s", *WHY) as process:
            wait_until(lambda: bool(ledger.query("select * from maintenance.holds")), "it is held")
            assert process.poll() is None
            ledger.do("delete from maintenance.session_releases")
            ended = finished(process)

    assert (ended.code, ended.stdout[:12]) == (0, "placed hold ")
    assert "may go yet" not in ended.stderr


def test_transcripts_that_may_go_yet_are_no_success(cli: CommandLine, ledger: Ledger) -> None:
    """The hold stands; but of what was claimed before, nobody has said that it is over."""
    ledger.do(
        "insert into maintenance.session_releases (scope, session_id, handle, settled_at, run_id,"
        " queued_at, not_before, claim_id, claimed_until)"
        " select 's', 'talk', 'a', 0, gen_random_uuid(), 0, 0, gen_random_uuid(),"
        " (extract(epoch from now()) * 1000)::bigint + 600000"
    )

    ended = cli.run("holds", "place", "s", *WHY)

    assert (ended.code, ended.stdout[:12]) == (1, "placed hold ")
    assert "1 transcript of the scope may go yet: being released before" in ended.stderr
    assert len(ledger.query("select * from maintenance.holds")) == 1
