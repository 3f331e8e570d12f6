"""Looking at a ledger and at what the jobs did: it writes nothing and shows no row's content."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from config.guards import GuardPolicy
from store.database import Database
from store.records import AgentRecord
from tests.e2e.command_line import EVERY_FINISHED, CommandLine
from tests.e2e.placed import LONG_AGO, Ledger

HOUR = 3_600_000


@pytest.fixture
def ledger(plain_ledger: tuple[str, Database]) -> Iterator[Ledger]:
    with closing(Ledger(plain_ledger[0])) as ledger:
        yield ledger


@pytest.fixture
def cli(ledger: Ledger) -> CommandLine:
    return CommandLine(ledger.url)


def test_a_list_shows_the_newest_first_without_content(cli: CommandLine, ledger: Ledger) -> None:
    ledger.agent("old", spawned_at=1, content={"summary": "SECRET", "usage": {"turns": 3}})
    ledger.agent("new", spawned_at=2, name="reviewer", settled_at=LONG_AGO)
    ledger.agent("elsewhere", scope="t")

    listed = cli.json("agents", "list", "--scope", "s")
    shown = cli.run("agents", "list", "--scope", "s")

    assert [row["handle"] for row in listed] == ["new", "old"]
    assert listed[1] == {
        "handle": "old",
        "owner": "session",
        "sessionScoped": True,
        "status": "completed",
        "spawnedAt": 1,
        "updatedAt": LONG_AGO,
        "usage": {"turns": 3},
    }
    assert "SECRET" not in shown.stdout
    header, first, second = shown.stdout.splitlines()
    assert header.split()[:4] == ["HANDLE", "STATUS", "NAME", "TYPE"]
    assert first.split()[:3] == ["new", "completed", "reviewer"]
    assert second.split()[:3] == ["old", "completed", "-"]


def test_a_list_by_status_and_by_session(cli: CommandLine, ledger: Ledger) -> None:
    ledger.agent("rooted", root_session_id="x", owner="other")
    ledger.agent("owned", owner="x")
    ledger.running("running", owner="x")
    ledger.agent("stranger", owner="y")

    by_session = cli.json("agents", "list", "--scope", "s", "--session", "x")
    both = cli.json("agents", "list", "--scope", "s", "--session", "x", "--status", "running")

    assert [row["handle"] for row in by_session] == ["owned", "rooted", "running"]
    assert [row["handle"] for row in both] == ["running"]


def test_a_list_that_was_cut_says_so(cli: CommandLine, ledger: Ledger) -> None:
    ledger.finished("a", "b", "c")

    cut = cli.run("agents", "list", "--scope", "s", "--limit", "2")
    whole = cli.run("agents", "list", "--scope", "s", "--limit", "3")

    assert "only the newest 2 agents are shown" in cut.stderr
    assert len(cut.stdout.splitlines()) == 3
    assert "only" not in whole.stderr


def test_a_running_row_is_never_said_to_live(cli: CommandLine, ledger: Ledger) -> None:
    """Silent for a while, or by a clock ahead of the database's: the last sign is what is known."""
    now = ledger.now()
    ledger.running("silent", updated_at=now - 90_000, writer_id="host-b")
    ledger.running("ahead", updated_at=now + HOUR)

    shown = cli.run("agents", "list", "--scope", "s").stdout
    listed = {row["handle"]: row for row in cli.json("agents", "list", "--scope", "s")}

    assert "last heard 9" in shown  # 90 s and what the test took
    assert " s ago from writer host-b" in shown
    assert "last heard from writer host-a, whose clock is 35" in shown
    assert "alive" not in shown
    assert listed["silent"]["lastHeard"]["writerId"] == "host-b"
    assert 90_000 <= listed["silent"]["lastHeard"]["agoMs"] < 150_000


def test_names_cannot_act_on_the_terminal(cli: CommandLine, ledger: Ledger) -> None:
    ledger.agent("a\x1b[2J\nb", name="東京")

    shown = cli.run("agents", "list", "--scope", "s").stdout

    assert "a\\x1b[2J\\nb" in shown
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 2


def test_one_record_whole(cli: CommandLine, ledger: Ledger) -> None:
    content = {"summary": "", "error": None, "x-unknown": {"a": [1, None]}, "sessionId": None}
    ledger.running("a", writer_epoch=None, content=content, updated_at=ledger.now() - 90_000)

    ended = cli.run("agents", "show", "s", "a")

    assert (ended.code, ended.problems) == (0, [])
    record = json.loads(ended.stdout)
    assert {name: record[name] for name in content} == content
    assert "writerEpoch" not in record
    assert AgentRecord.from_json(record).status == "running"
    assert "running: last heard 9" in ended.stderr
    assert " s ago from writer host-a" in ended.stderr
    assert cli.json("agents", "show", "s", "a") == record


def test_a_finished_record_was_heard_of_enough(cli: CommandLine, ledger: Ledger) -> None:
    ledger.finished("a")

    assert "last heard" not in cli.run("agents", "show", "s", "a").stderr


@pytest.mark.parametrize(("scope", "handle"), [("s", "b"), ("t", "a"), ("s", "A")])
def test_a_record_that_is_not_there(
    cli: CommandLine, ledger: Ledger, scope: str, handle: str
) -> None:
    ledger.finished("a")

    ended = cli.run("agents", "show", scope, handle)

    assert (ended.code, ended.stdout) == (1, "")
    assert ended.problems == [f"scope {scope!r} has no agent {handle!r}"]


def test_scopes(cli: CommandLine, ledger: Ledger) -> None:
    ledger.finished("a", "b", scope="t/東京")
    ledger.running("c", scope="s")

    assert cli.run("scopes").stdout == "s\nt/東京\n"
    assert cli.json("scopes") == [{"scope": "s"}, {"scope": "t/東京"}]
    counts = {each["scope"]: each["agents"] for each in cli.json("scopes", "--counts")}
    assert counts["s"] == {"running": 1, "parked": 0, "completed": 0, "failed": 0, "killed": 0}
    assert counts["t/東京"]["completed"] == 2
    assert cli.run("scopes", "--counts").stdout.splitlines()[2].split() == [
        *("t/東京", "0", "0", "2", "0", "0")
    ]


def test_an_empty_ledger_is_looked_at_without_a_fuss(cli: CommandLine) -> None:
    assert cli.json("scopes") == []
    assert cli.json("agents", "list", "--scope", "s") == []
    assert cli.json("history") == []
    assert cli.run("agents", "list", "--scope", "s").stdout == "no such agents in scope s\n"
    assert cli.run("history").stdout == "no run is on record\n"
    assert cli.run("export").stdout == ""


def test_history_has_the_newest_run_first(cli: CommandLine, ledger: Ledger) -> None:
    ledger.finished("a", "b")
    cli.json("reap", "--scope", "s", "--keep", "1", "--override", "floors")
    cli.json("release-sessions", "--scope", "s")
    cli.json("reap", "--scope", "s", "--max-age", "1h")

    runs = cli.json("history")
    of_job = cli.json("history", "--job", "release-sessions")
    newest = cli.run("history", "--limit", "1", "--job", "reap")

    assert [run["job"] for run in runs] == ["reap", "release_sessions", "reap"]
    assert [run["overrides"] for run in runs] == [[], [], ["floors"]]
    assert [run["report"] for run in runs] == [{"max_age": 1}, {}, {"keep": 1}]
    assert [run["job"] for run in of_job] == ["release_sessions"]
    assert "only the newest 1 runs are shown" in newest.stderr
    assert newest.stdout.splitlines()[1].split()[2:4] == ["reap", "succeeded"]
    assert [run["asked"] for run in runs] == [
        {"scopes": ["s"], "policy": {"max_age": "1h"}},
        {"scopes": ["s"], "policy": None},
        {"scopes": ["s"], "policy": {"keep": 1}},
    ]
    assert "keep 1, s, lifting floors" in cli.run("history").stdout


def test_history_has_the_policy_file_that_a_command_named(
    cli: CommandLine, ledger: Ledger, tmp_path: Path
) -> None:
    ledger.finished("a")
    policy = tmp_path / "policy.toml"
    policy.write_text("[defaults]\nkeep = 1\n")
    cli.json("reap", "--scope", "s", "--policy", str(policy))

    [run] = cli.json("history")
    shown = cli.run("history").stdout

    flags = {"policy_file": str(policy)}
    assert run["asked"] == {"scopes": ["s"], "policy": None, "flags": flags}
    assert f"policy_file {policy}, s" in shown


def test_an_unknown_job_is_not_an_empty_history(cli: CommandLine) -> None:
    assert "there is no job 'reep'; did you mean reap?" in cli.refusal("history", "--job", "reep")


def test_status(cli: CommandLine, ledger: Ledger, tmp_path: Path) -> None:
    now = ledger.now()
    ledger.running("a")
    ledger.parked("b", "t")
    ledger.finished("c")
    cli.json("reap", "--scope", "s", *EVERY_FINISHED)
    missed = now - now % 60_000 - 5 * 60_000
    ledger.do(
        "insert into maintenance.schedule values"
        f" ('flip_stale_running', {missed}, 60000), ('reap', {now - now % 15_000}, 15000);"
        " insert into maintenance.memory_boundary values ('a_tag', 'Why it cannot.', 1)"
    )
    policy = tmp_path / "policy.toml"
    policy.write_text('[schedule]\nrelease_sessions = "10s"\n')

    found = cli.json("status", MAINT_POLICY_FILE=str(policy))
    shown = cli.run("status", "--policy", str(policy)).stdout

    jobs = {each["job"]: each for each in found["jobs"]}
    assert [*jobs] == [
        *("flip_stale_running", "reconcile_parked", "reap", "release_sessions"),
        *("drain_harvest", "housekeeping"),
    ]
    assert found["agents"] == {"running": 1, "parked": 1}
    assert found["session_releases"] == {"pending": 1, "suspect": 0, "dead": 0}
    assert found["memory_warnings"] == {"a_tag": "Why it cannot."}
    assert "sema_test_plain_" in found["database"]
    flip, reap = jobs["flip_stale_running"], jobs["reap"]
    assert (flip["last_slot"], flip["late"], flip["last_run"]) == (missed, True, None)
    assert (reap["period_ms"], reap["late"]) == (15_000, False)
    assert reap["last_run"]["report"] == {"keep": 1}
    assert jobs["release_sessions"]["period_ms"] == 10_000
    assert jobs["release_sessions"]["last_slot"] is None
    for job in jobs.values():
        assert now < job["next_due"] <= ledger.now() + job["period_ms"]
        assert job["next_due"] % job["period_ms"] == 0
    assert "a_tag: Why it cannot." in shown
    assert "(late)" in shown


def test_status_says_what_is_held_back_and_where_it_fails(cli: CommandLine, ledger: Ledger) -> None:
    """By guards, each with its end and with what lifts it; by holds; by what cannot be done."""
    now = ledger.now()
    ledger.do(
        "insert into maintenance.breakers (job, scope, reason, opened_at, detail, holds_until)"
        f" values ('flip_stale_running', '', 'silence', {LONG_AGO}, 'not one was renewed',"
        f" {now + HOUR}), ('reconcile_parked', '', 'no_checkpoints', {LONG_AGO}, 'none', null);"
        " insert into maintenance.failing_scopes (job, scope, run_id, error, since, last_at)"
        " select 'reap', 's' || n, gen_random_uuid(), 'broken', 1, 1 from generate_series(1, 2) n"
    )
    cli.json("holds", "place", "s", "--reason", "case 4711")

    found = cli.json("status")
    shown = cli.run("status").stdout

    assert (found["holds"], found["failing_scopes"]) == (1, {"reap": 2})
    assert [each["reason"] for each in found["breakers"]] == ["silence", "no_checkpoints"]
    assert (
        "held         flip_stale_running: silence since 2017-07-14 02:40:00 UTC, until 2" in shown
    )
    assert "not one was renewed; `flip-stale-running --scope S --override outage` lifts it" in shown
    assert (
        "until its cause is gone: none; `reconcile-parked --scope S --override plausible" in shown
    )
    assert "holds        1 in force; `holds list` shows them" in shown
    assert "failing      reap in 2 scopes; `history --job reap` names them and why" in shown


def test_status_says_how_long_the_backlog_takes(
    cli: CommandLine, ledger: Ledger, tmp_path: Path
) -> None:
    """At the pace of the runs that ended within the last hour; without any, it says so."""
    ledger.finished("a", "b", "c", "d")
    policy = tmp_path / "policy.toml"
    policy.write_text("[defaults]\nkeep = 1\n")
    before = cli.run("status", "--policy", str(policy)).stdout
    cli.json("reap", "--scope", "s", "--keep", "3")
    ledger.do("update maintenance.runs set started_at = started_at - 600000")

    found = cli.json("status", "--policy", str(policy))["backlog"]["reap"]
    shown = cli.run("status", "--policy", str(policy)).stdout

    assert "backlog      reap: 3 rows are due; nothing was done within the last hour" in before
    assert (found["rows"], found["done_lately"]) == (2, 1)
    assert 1_200_000 <= found["left_ms"] < 1_260_000
    assert "backlog      reap: 2 rows are due; 1 was done within the last 10 min" in shown
    assert "so the rest takes about 20 min" in shown


def test_policy_check(tmp_path: Path) -> None:
    """Needs no database, nor does explain."""
    cli = CommandLine(None)
    file = tmp_path / "policy.toml"
    file.write_text('[defaults]\nmax_age = "720h"\n[[override]]\nmatch = "t/*"\nkeep = "off"\n')

    shown = cli.run("policy", "check", str(file))
    found = cli.json("policy", "check", MAINT_POLICY_FILE=str(file))

    assert shown.code == 0
    assert shown.stdout.startswith("policy.toml can be used\n")
    assert "  override t/*: keep = off\n" in shown.stdout
    assert found["ok"] is True
    assert found["sets"]["defaults"] == {"max_age": "30d"}
    assert found["deletes"] is True
    assert "no row is ever deleted" not in shown.stdout


def test_policy_check_shows_every_guard_and_whose_word_it_is(tmp_path: Path) -> None:
    """One that the file sets to its default is the file's all the same."""
    cli = CommandLine(None)
    file = tmp_path / "policy.toml"
    file.write_text('[guards]\nheartbeat = "60s"\nbreaker_rows = 50\noutage = false\n')

    shown = cli.run("policy", "check", str(file)).stdout
    found = cli.json("policy", "check", str(file))

    assert [*found["guards"]] == [*GuardPolicy().values()]
    said = {name: (it["value"], it["from"]) for name, it in found["guards"].items()}
    assert said["heartbeat"] == ("1m", "file")
    assert said["breaker_rows"] == ("50", "file")
    assert said["outage"] == ("false", "file")
    assert said["sightings"] == ("true", "default")
    assert said["breaker_share"] == ("off", "default")
    rows = [line.split() for line in shown.splitlines()]
    assert [[name, *of] for name, of in said.items()] == rows[-len(said) :]


@pytest.mark.parametrize(
    "text",
    ["", '[defaults]\nkeep = "off"\nstale_running_max_age = "1h"\n'],
)
def test_policy_check_says_when_no_row_is_ever_deleted(tmp_path: Path, text: str) -> None:
    cli = CommandLine(None)
    file = tmp_path / "policy.toml"
    file.write_text(text)

    assert "no row is ever deleted by this policy" in cli.run("policy", "check", str(file)).stdout
    assert cli.json("policy", "check", str(file))["deletes"] is False


def test_policy_check_names_everything_that_is_wrong(tmp_path: Path) -> None:
    cli = CommandLine(None)
    file = tmp_path / "policy.toml"
    file.write_text('[defaults]\nmax_age = "30"\nkeep = -1\n')

    ended = cli.run("policy", "check", str(file), "--json")

    assert ended.code == 2
    assert len(ended.problems) == 2
    document = json.loads(ended.stdout)
    assert (document["ok"], document["problems"]) == (False, ended.problems)


def test_no_policy_file_is_said_to_delete_nothing() -> None:
    cli = CommandLine(None)

    assert "nothing is deleted" in cli.run("policy", "check").stdout
    assert "nothing is deleted" in cli.run("policy", "explain", "s").stdout
    assert cli.json("policy", "check")["source"] is None


def test_policy_explain(tmp_path: Path) -> None:
    cli = CommandLine(None)
    file = tmp_path / "policy.toml"
    file.write_text(
        '[defaults]\nmax_age = "30d"\nkeep = 5\n'
        '[[override]]\nmatch = "t/*"\nkeep = 7\n[[override]]\nmatch = "t/1"\nkeep = "off"\n'
    )

    shown = cli.run("policy", "explain", "t/1", "--policy", str(file)).stdout
    rules = cli.json("policy", "explain", "t/1", "--policy", str(file))["rules"]

    keep = next(rule for rule in rules if rule["field"] == "keep")
    assert (keep["value"], keep["source"]) == ("off", 'override "t/1" (policy.toml, override 2)')
    assert [beaten["value"] for beaten in keep["beaten"]] == ["7", "5"]
    assert [line.split()[:3] for line in shown.splitlines()[1:4]] == [
        ["max_age", "30d", "defaults"],
        ["keep", "off", "override"],
        ["and", "not", "7"],
    ]
    assert "a scope cannot be empty" in cli.refusal("policy", "explain", "")


SERVER = {
    "REMOTE_EXEC": "",
    "MEMORY_PERSISTENCE_CAPABLE": "",
    "MEMORY_ENGINE_BACKEND": "file",
    "MEMORY_ENGINE_DIR": "/data/memory-root",
    "WORKSPACE_ROOTS": "/data/work",
}


def test_the_audit_by_hand_keeps_and_shows_what_it_found(cli: CommandLine, ledger: Ledger) -> None:
    found = cli.json("audit-memory", **SERVER)
    warned = cli.run("audit-memory", **SERVER)
    in_force = cli.json("status")["memory_warnings"]
    clear = cli.run("audit-memory", **SERVER | {"MEMORY_PERSISTENCE_CAPABLE": "false"})

    assert found["outcome"] == "warned"
    assert [*found["warnings"]] == ["memory_root_outside_write_boundary"]
    assert in_force == found["warnings"]
    assert warned.code == 0
    assert warned.stdout.startswith("memory_root_outside_write_boundary: ")
    assert clear.stdout.startswith("no reason was found")
    assert cli.json("status")["memory_warnings"] == {}
    assert len(cli.json("history", "--job", "audit-memory")) == 3


def test_a_dry_audit_needs_no_database_and_keeps_nothing() -> None:
    found = CommandLine(None).json("audit-memory", "--dry-run", **SERVER)

    assert (found["outcome"], found["dry_run"]) == ("warned", True)


def test_an_audit_of_a_variable_that_cannot_be_understood_fails(
    cli: CommandLine, ledger: Ledger
) -> None:
    settings = SERVER | {"MEMORY_ENGINE_BACKEND": "floppy"}
    for arguments in (("--dry-run",), ()):
        ended = cli.run("audit-memory", *arguments, **settings)
        assert ended.code == 1
        [problem] = ended.problems
        assert problem.startswith('the audit failed: MEMORY_ENGINE_BACKEND is "floppy"')
    assert ledger.last_run()["state"] == "failed"
