"""Stopping jobs at the command line: what is said, what is on record, and what is refused."""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from store.database import Database
from tests.e2e.command_line import EVERY_FINISHED, CommandLine
from tests.e2e.placed import Ledger

JOBS = (
    "drain_harvest",
    "flip_stale_running",
    "housekeeping",
    "reap",
    "reconcile_parked",
    "release_sessions",
)
OVER_ALL = ("--all-scopes", "--yes")


@pytest.fixture
def ledger(plain_ledger: tuple[str, Database]) -> Iterator[Ledger]:
    with closing(Ledger(plain_ledger[0])) as ledger:
        yield ledger


@pytest.fixture
def cli(ledger: Ledger) -> CommandLine:
    return CommandLine(ledger.url)


def in_force(ledger: Ledger) -> list[tuple[str, str]]:
    found = ledger.query("select job, scope from maintenance.pauses order by job, scope")
    return [(row["job"], row["scope"]) for row in found]


def acts(cli: CommandLine, *arguments: str) -> list[Any]:
    found: list[Any] = cli.json("history", "--actions", *arguments)
    return found


def test_pause_says_so_once_it_holds_and_is_on_record(cli: CommandLine, ledger: Ledger) -> None:
    ended = cli.run("pause", "reap", "--reason", "restore under way")

    assert (ended.code, ended.stdout) == (0, "paused: reap everywhere\n")
    [row] = ledger.query("select * from maintenance.pauses")
    assert (row["job"], row["scope"], row["reason"]) == ("reap", "", "restore under way")
    assert "@" in row["paused_by"]
    assert abs(row["paused_at"] - ledger.now()) < 60_000
    [act] = acts(cli)
    assert (act["action"], act["job"], act["scope"]) == ("pause", "reap", None)
    assert (act["actor"], act["at"]) == (row["paused_by"], row["paused_at"])
    assert act["detail"] == {"reason": "restore under way"}


def test_command_by_hand_is_told_who_paused_and_what_resumes(
    cli: CommandLine, ledger: Ledger
) -> None:
    ledger.finished("a", "b")
    cli.json("pause", "reap", "--reason", "restore under way")

    ended = cli.run("reap", "--scope", "s", *EVERY_FINISHED, "--override", "all", "--json")

    assert ended.code == 1
    assert json.loads(ended.stdout)["report"]["skipped/paused"] == 2
    [problem] = ended.problems
    assert problem.startswith("reap is paused everywhere since 20")
    assert ": restore under way; `sema-maintenance resume reap` lets it go on" in problem
    assert ledger.handles() == ["a", "b"]
    said = cli.run("reap", "--scope", "s", *EVERY_FINISHED)
    assert said.stdout == "reap paused: max_age 0, keep 0, skipped/paused 2\n"


def test_dry_run_shows_what_is_left_alone(cli: CommandLine, ledger: Ledger) -> None:
    ledger.finished("a", "b")
    ledger.finished("c", scope="t")
    cli.json("pause", "reap", "--scope", "t")

    ended = cli.run("reap", "--all-scopes", *EVERY_FINISHED, "--dry-run", "--json")

    assert (ended.code, ended.problems) == (0, [])
    document = json.loads(ended.stdout)
    planned = {(p["scope"], p["arm"], p["cause"]): p["rows"] for p in document["planned"]}
    assert planned == {("s", "keep", None): 2, ("t", "skipped", "paused"): 1}
    assert document["rows"] == 2
    assert "note: reap is paused in scope 't' since" in ended.stderr


def test_other_scopes_are_worked_through_by_hand(cli: CommandLine, ledger: Ledger) -> None:
    ledger.finished("a", "b")
    ledger.finished("c", scope="t")
    cli.json("pause", "reap", "--scope", "t")

    ended = cli.run("reap", *OVER_ALL, *EVERY_FINISHED, "--json")
    assert (ended.code, len(ended.problems)) == (1, 1)
    assert json.loads(ended.stdout)["report"] == {"max_age": 0, "keep": 2, "skipped/paused": 1}

    again = cli.run("reap", *OVER_ALL, *EVERY_FINISHED)
    assert again.stdout.startswith("reap paused in part, elsewhere succeeded in ")

    elsewhere = cli.run("reap", "--scope", "s", *EVERY_FINISHED)
    assert (elsewhere.code, elsewhere.problems) == (0, [])


def test_job_goes_on_once_it_is_resumed(cli: CommandLine, ledger: Ledger) -> None:
    ledger.finished("a")
    cli.json("pause", "reap")

    ended = cli.run("resume", "reap")

    assert (ended.code, ended.stdout) == (0, "resumed: reap\n")
    assert cli.json("reap", "--scope", "s", *EVERY_FINISHED)["report"]["keep"] == 1
    assert [act["action"] for act in acts(cli)] == ["resume", "pause"]
    assert acts(cli)[0]["detail"].keys() == {"paused_for", "paused_by", "paused_at"}


def test_pausing_twice_changes_nothing_and_is_what_was_wanted(
    cli: CommandLine, ledger: Ledger
) -> None:
    cli.json("pause", "reap", "--reason", "first")

    ended = cli.run("pause", "reap", "--reason", "second")

    assert ended.code == 0
    assert "reap is paused everywhere since" in ended.stdout
    assert ended.stdout.endswith(": first; that stays as it is\n")
    [row] = ledger.query("select reason from maintenance.pauses")
    assert row["reason"] == "first"
    assert len(acts(cli)) == 1


def test_resuming_what_is_not_paused_says_so(cli: CommandLine) -> None:
    for arguments, said in (
        (("reap",), "reap was not paused everywhere; nothing was changed\n"),
        (
            ("reap", "--scope", "s"),
            "reap was not paused in scope 's' by itself; nothing was changed\n",
        ),
        (("all",), "no job was paused there; nothing was changed\n"),
    ):
        ended = cli.run("resume", *arguments)
        assert (ended.code, ended.stdout, ended.problems) == (0, said, [])
    assert acts(cli) == []


def test_pauses_of_scopes_remain_and_are_named(cli: CommandLine, ledger: Ledger) -> None:
    for scope in ((), ("--scope", "it's one", "--scope", "t")):
        cli.json("pause", "reap", *scope)

    ended = cli.run("resume", "reap")

    assert ended.code == 0
    assert in_force(ledger) == [("reap", "it's one"), ("reap", "t")]
    assert """note: reap is paused in scope "it's one" since""" in ended.stderr
    assert """`sema-maintenance resume reap --scope 'it'"'"'s one'`""" in ended.stderr

    cli.json("resume", "reap", "--scope", "t", "--scope", "it's one")
    assert in_force(ledger) == []


def test_scope_does_not_go_on_while_the_job_is_paused_everywhere(
    cli: CommandLine, ledger: Ledger
) -> None:
    cli.json("pause", "reap")
    cli.json("pause", "reap", "--scope", "s")

    ended = cli.run("resume", "reap", "--scope", "s")

    assert (ended.code, in_force(ledger)) == (1, [("reap", "")])
    [problem] = ended.problems
    assert "reap is paused everywhere since" in problem
    assert "`sema-maintenance resume reap` lets it go on" in problem


def test_all_jobs_at_once(cli: CommandLine, ledger: Ledger) -> None:
    """In scopes those that know any."""
    document = cli.json("pause", "all")
    assert [each["job"] for each in document["paused"]] == [*JOBS]
    assert len(cli.json("resume", "all")["resumed"]) == len(JOBS)
    assert in_force(ledger) == []

    cli.json("pause", "all", "--scope", "s")
    assert in_force(ledger) == [(job, "s") for job in JOBS if job != "housekeeping"]


def test_status_lists_pauses(cli: CommandLine) -> None:
    cli.json("pause", "flip-stale-running", "--scope", "s", "--reason", "no\x1b[31m red")

    [found] = cli.json("status")["pauses"]
    assert (found["job"], found["scope"]) == ("flip_stale_running", "s")
    said = cli.run("status").stdout
    assert "paused       flip-stale-running is paused in scope 's' since" in said
    assert "\x1b" not in said


def test_acts_are_listed_for_a_person(cli: CommandLine) -> None:
    assert cli.run("history", "--actions").stdout == "nobody's act is on record\n"
    cli.json("pause", "reap", "--scope", "s", "--reason", "why not")
    cli.json("pause", "drain-harvest")

    header, line = cli.run("history", "--actions", "--job", "reap").stdout.splitlines()

    assert header.split()[:3] == ["WHEN", "(UTC)", "WHO"]
    assert line.split()[-5:] == ["reap", "s", "-", "why", "not"]
    assert len(acts(cli, "--limit", "1")) == 1


def test_acts_of_any_detail_are_listed(cli: CommandLine, ledger: Ledger) -> None:
    """The number of a hold; of a resume not why it was paused; and JSON that nobody expects."""
    cli.run("holds", "place", "s", "--reason", "case 1")
    number = cli.json("holds", "list")[0]["id"]
    cli.run("holds", "release", str(number))
    cli.run("pause", "reap", "--reason", "a restore")
    cli.run("resume", "reap")
    ledger.do(
        "insert into maintenance.actions (at, actor, action, detail, scope) values"
        """ (1, 'ada', 'wave', '["twice"]', 's'), (0, 'ada', 'nod', 'null', 's'),"""
        """ (0, 'ada', 'resume', '{"reason": "of the pause", "paused_by": "bob"}', 's')"""
    )

    listed = cli.run("history", "--actions")

    assert (listed.code, listed.problems) == (0, [])
    rows = [line.split("  ") for line in listed.stdout.splitlines()[1:]]
    told = [(*filter(None, map(str.strip, row)),) for row in rows]
    assert [(row[2], row[-1]) for row in told] == [
        ("resume", "-"),
        ("pause", "a restore"),
        (f"release_hold (hold {number})", "-"),
        (f"place_hold (hold {number})", "case 1"),
        ("wave", '["twice"]'),
        ("resume", "-"),
        ("nod", "-"),
    ]
    shown = cli.run("explain", "s", "a").stdout
    assert f"place_hold (hold {number}) on its scope (case 1)" in shown
    assert 'ada: wave on its scope (["twice"])' in shown


def test_job_of_another_release_is_resumed_by_its_name(cli: CommandLine, ledger: Ledger) -> None:
    """Or with all others; a name under which nothing is paused is a slip."""
    for scope in ("", "s"):
        ledger.do(
            "insert into maintenance.pauses (job, scope, reason, paused_by, paused_at)"
            f" values ('compact_journal', '{scope}', 'newer', 'ada', 1)"
        )
    assert "did you mean reap?" in cli.refusal("resume", "reep")
    assert "there is no job 'compact-journal'" in cli.refusal("pause", "compact-journal")

    ended = cli.run("resume", "compact-journal")
    assert (ended.code, ended.stdout) == (0, "resumed: compact-journal\n")
    assert in_force(ledger) == [("compact_journal", "s")]

    cli.json("resume", "all", "--scope", "s")
    assert in_force(ledger) == []


def test_scope_without_rows_is_noted_and_paused(cli: CommandLine, ledger: Ledger) -> None:
    """It may be a slip, or rows are to come. A name that reads as a glob may be one, too."""
    ledger.finished("a", scope="s[1]")

    ended = cli.run("pause", "reap", "--scope", "tenant/acne", "--scope", "s[1]")

    assert ended.code == 0
    [note] = [line for line in ended.stderr.splitlines() if line.startswith("note: ")]
    assert note.startswith("note: scope 'tenant/acne' holds no agents; it is paused all the same")
    assert in_force(ledger) == [("reap", "s[1]"), ("reap", "tenant/acne")]


def test_whatever_is_paused_can_be_resumed(cli: CommandLine, ledger: Ledger) -> None:
    """Also in a scope that would be refused now."""
    long = "s" * 5000
    ledger.do(
        "insert into maintenance.pauses (job, scope, reason, paused_by, paused_at)"
        f" values ('reap', '{long}', '', 'ada', 1), ('reap', 'tenant/*', '', 'ada', 1)"
    )

    cli.json("resume", "reap", "--scope", long, "--scope", "tenant/*")

    assert in_force(ledger) == []


def test_housekeeping_that_is_paused_fails_by_hand(cli: CommandLine) -> None:
    cli.json("pause", "housekeeping")
    ended = cli.run("housekeeping")
    assert ended.code == 1
    assert "`sema-maintenance resume housekeeping` lets it go on" in ended.problems[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pause", "housekeeping", "--scope", "s"), "housekeeping knows no scopes"),
        (("pause", "audit-memory"), "audit-memory only looks"),
        (("pause", "reep"), "did you mean reap?"),
        (("pause", "reap", "--scope", ""), "a scope cannot be empty"),
        (("pause", "all", "--scope", "s", "--scope", "t/*"), "a scope is named in full: it is no"),
        (("pause", "reap", "--scope", "s" * 2601), "scope is 2601 bytes; an index holds 2600."),
        (("reap", "--scope", "s" * 2601, "--keep", "1"), "scope is 2601 bytes; an index holds"),
        (("pause", "reap", "--scope", "s\0"), "it contains a NUL character"),
        (("pause", "reap", "--reason", "x" * 501), "reason has 501 characters; 500 are the limit"),
        (("pause",), "JOB|all"),
        (("resume", "reap", "--reason", "x"), "--reason"),
        (("history", "--actions", "--request", "00000000-0000-0000-0000-000000000000"), "give one"),
        (("reap", "--scope", "s", "--override", "pause"), "cannot be lifted by anything"),
    ],
    ids=lambda each: str(each)[:60],
)
def test_refusals(cli: CommandLine, ledger: Ledger, arguments: tuple[str, ...], said: str) -> None:
    assert said in cli.refusal(*arguments)
    assert in_force(ledger) == []


def test_batch_that_does_not_end_fails_the_command_and_the_job_is_paused_all_the_same(
    cli: CommandLine, ledger: Ledger
) -> None:
    with psycopg.connect(ledger.url) as stuck:
        stuck.execute(
            "select pg_advisory_xact_lock_shared("
            "hashtext('sema-maintenance batches'), hashtext('reap'))"
        )
        ended = cli.run("pause", "reap", MAINT_STATEMENT_TIMEOUT="100ms")

    assert (ended.code, in_force(ledger)) == (1, [("reap", "")])
    [problem] = ended.problems
    assert "no batch of it begins any more" in problem
    assert "still under way; wait for it with the same command" in problem
    assert cli.run("pause", "reap").code == 0
