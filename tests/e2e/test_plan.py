"""Plans: written down row by row, read, and applied; whatever changed meanwhile is left alone."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from store.database import Database
from store.records import STALE_RUNNING_REAP_ATTRIBUTION
from tests.e2e.command_line import AT_ONCE, EVERY_FINISHED, UNSEEN, CommandLine
from tests.e2e.placed import LONG_AGO, Ledger
from tests.transcript_system import transcript_system
from tests.waiting import wait_until

WHY = ("--reason", "case 4711")
REAP = ("reap", "--keep", "1", "--all-scopes")


@pytest.fixture
def ledger(plain_ledger: tuple[str, Database]) -> Iterator[Ledger]:
    with closing(Ledger(plain_ledger[0])) as ledger:
        yield ledger


@pytest.fixture
def cli(ledger: Ledger) -> CommandLine:
    return CommandLine(ledger.url)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.plan"


def applied(cli: CommandLine, path: Path, *more: str) -> dict[str, int]:
    """What a plan that is applied in full comes to, without what is 0."""
    report = cli.json("apply", str(path), "--yes", *more)["report"]
    return {what: n for what, n in report.items() if n}


def test_a_reap_is_planned_and_done(cli: CommandLine, ledger: Ledger, path: Path) -> None:
    """The file names what the dry run counts, in the order of its keys, and the run does that."""
    ledger.finished("d", "b", "a", "c")
    ledger.finished("a", "b", scope="B")

    made = cli.json("plan", *REAP, "-o", str(path))

    assert (made["rows"], made["reasons"]) == (4, {"keep": 4})
    header, *rows, footer = [json.loads(line) for line in path.read_text().splitlines()]
    assert path.stat().st_mode & 0o777 == 0o600
    assert [(row["scope"], row["handle"]) for row in rows] == [
        ("B", "a"),
        ("s", "a"),
        ("s", "b"),
        ("s", "d"),
    ]
    assert (rows[0]["rev"], rows[0]["spawned_at"], rows[0]["reason"]) == (1, 1000, "keep")
    assert footer == {"rows": 4, "sha256": made["digest"]}
    assert header["job"] == "reap"
    assert ledger.handles("s") == ["a", "b", "c", "d"]

    assert applied(cli, path) == {"keep": 4}

    assert (ledger.handles("s"), ledger.handles("B")) == (["c"], ["b"])
    assert applied(cli, path) == {"lost_race": 4}


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a plan, as they stand in the file."""
    return [json.loads(line) for line in path.read_text().splitlines()][1:-1]


def test_flips_and_reconciliations_are_planned_and_done(
    cli: CommandLine, ledger: Ledger, path: Path
) -> None:
    ledger.running("silent")
    ledger.claimed("claimed", "pending")
    ledger.checkpoint("pending")
    ledger.parked("expired", "over")
    ledger.checkpoint("over", status="expired")
    ledger.parked("waiting", "asked")
    ledger.checkpoint("asked")
    flip = ("plan", "flip-stale-running", "--scope", "s", "--stale-after", "1h", *AT_ONCE)

    cli.json(*flip, "-o", str(path))
    assert [(row["handle"], row["reason"]) for row in lines_of(path)] == [
        ("silent", "stale_running")
    ]
    assert cli.json("apply", str(path), "--yes")["report"] == {
        "flipped": 0,
        "skipped/outage": 1,
    }
    assert applied(cli, path, *AT_ONCE) == {"flipped": 1}

    cli.json(
        *("plan", "reconcile-parked", "--scope", "s", "--stale-claim-after", "1h", *UNSEEN),
        *("-o", str(path), "--force"),
    )
    assert [(row["handle"], row["reason"]) for row in lines_of(path)] == [
        ("claimed", "stale_claim"),
        ("expired", "checkpoint_expired"),
    ]
    done = {"rolled_back/stale_claim": 1, "failed/checkpoint_expired": 1}
    previewed = cli.json("apply", str(path), "--dry-run", *UNSEEN)
    assert {f"{p['arm']}/{p['cause']}": p["rows"] for p in previewed["planned"]} == done
    assert applied(cli, path, *UNSEEN) == done
    assert [ledger.brief(handle)[0] for handle in ("silent", "claimed", "expired", "waiting")] == [
        "failed",
        "parked",
        "failed",
        "parked",
    ]
    assert applied(cli, path, *UNSEEN) == {"lost_race": 2}


def test_releases_are_planned_and_done(cli: CommandLine, ledger: Ledger, path: Path) -> None:
    """Entry by entry: one that was queued after the plan was made stays."""
    ledger.finished("a", "b", "later")
    for handle in ("a", "b", "later"):
        ledger.session(f"transcript of {handle}")
    for handles in ("'a', 'b'", "'later'"):
        ledger.do(
            "insert into maintenance.session_releases"
            " (scope, session_id, handle, settled_at, run_id, queued_at, not_before)"
            f" select scope, session_id, handle, {LONG_AGO + 9}, gen_random_uuid(), 0, 0"
            f" from background_agents where handle in ({handles});"
            f" delete from background_agents where handle in ({handles})"
        )
        if not path.exists():
            made = cli.json("plan", "release-sessions", "--all-scopes", "-o", str(path))
    assert (made["rows"], made["reasons"]) == (2, {"released": 2})
    assert [(row["handle"], row["session_id"]) for row in lines_of(path)] == [
        ("a", "transcript of a"),
        ("b", "transcript of b"),
    ]

    assert applied(cli, path) == {"released": 2}

    assert ledger.transcripts("s") == ["transcript of later"]
    assert applied(cli, path) == {"lost_race": 2}
    assert 'MAINT_RELEASE_BACKEND was "postgres"' in cli.refusal(
        "apply", str(path), "--yes", MAINT_RELEASE_BACKEND="none"
    )


def test_releases_of_another_system_are_planned_and_done(
    cli: CommandLine, ledger: Ledger, path: Path
) -> None:
    """It is asked for what the plan names; one that it holds no more counts as absent."""
    with transcript_system() as system:
        system.hold("x", "y", "z", scope="s")
        elsewhere = {"MAINT_RELEASE_BACKEND": "http", "MAINT_RELEASE_URL": system.template}
        for session in ("w", "x", "y"):
            ledger.do(
                "insert into maintenance.session_releases"
                " (scope, session_id, handle, settled_at, run_id, queued_at, not_before)"
                f" values ('s', '{session}', 'a', 1, gen_random_uuid(), 0, 0)"
            )
        made = cli.json("plan", "release-sessions", "--scope", "s", "-o", str(path), **elsewhere)
        assert made["rows"] == 3
        ledger.do("delete from maintenance.session_releases where session_id = 'x'")

        report = cli.json("apply", str(path), "--yes", **elsewhere)["report"]

        assert report == {"released": 1, "absent": 1, "lost_race": 1}
        assert system.held == {("s", "x"), ("s", "z")}


def test_what_changed_since_is_left_alone_and_counted(
    cli: CommandLine, ledger: Ledger, path: Path
) -> None:
    """Whatever is lifted: a hold and a pause stay, and so do a revival and a new life."""
    ledger.finished("gone", "held", "reused", "revived", "z")
    ledger.finished("a", scope="paused")
    ledger.finished("b", scope="held")
    plan = ("plan", "reap", "--all-scopes", *EVERY_FINISHED, "-o", str(path))
    assert cli.json(*plan)["rows"] == 7
    for held in (("s", "held"), ("held",)):
        cli.run("holds", "place", *held, *WHY)
    cli.run("pause", "reap", "--scope", "paused", *WHY)
    ledger.do("delete from background_agents where handle in ('gone', 'reused')")
    ledger.finished("reused")
    ledger.do("update background_agents set spawned_at = 1001 where handle = 'reused'")
    ledger.do("update background_agents set status = 'running', rev = 2 where handle = 'revived'")
    expected = {"keep": 1, "lost_race": 3, "skipped/hold": 2, "skipped/paused": 1}

    previewed = cli.json("apply", str(path), "--dry-run", "--override", "all")
    ended = cli.run("apply", str(path), "--yes", "--override", "all", "--json")

    assert ended.code == 1
    assert any("reap is paused" in problem for problem in ended.problems)
    report = json.loads(ended.stdout)["report"]
    assert {what: n for what, n in report.items() if n} == expected
    counted: Counter[str] = Counter()
    for each in previewed["planned"]:
        counted["/".join(filter(None, (each["arm"], each["cause"])))] += each["rows"]
    assert counted == expected
    assert ledger.handles("s") == ["held", "reused", "revived"]
    assert (ledger.handles("paused"), ledger.handles("held")) == (["a"], ["b"])


def test_a_run_by_plan_stands_in_the_history(cli: CommandLine, ledger: Ledger, path: Path) -> None:
    ledger.finished("a", "b")
    made = cli.json("plan", *REAP, "-o", str(path))
    cli.run("apply", str(path), "--yes")

    [run] = cli.json("history")

    assert (run["job"], run["state"], run["asked"]["scopes"]) == ("reap", "succeeded", None)
    assert run["asked"]["flags"] == {"plan": "some.plan", "digest": made["digest"], "rows": "1"}
    assert made["digest"] in cli.run("history").stdout


def test_a_plan_that_was_tampered_with_does_nothing(
    cli: CommandLine, ledger: Ledger, path: Path, tmp_path: Path
) -> None:
    """Each with one sentence, before anything is done; so also where the digest is made anew."""
    ledger.finished("a", "b", "c", "d")
    cli.json("plan", *REAP, "-o", str(path))
    header, *rows, footer = path.read_bytes().splitlines(keepends=True)
    other = tmp_path / "other.plan"

    def anew(*lines: bytes, end: bytes = b"") -> bytes:
        """Lines under a digest that is right for them."""
        text = b"".join(lines)
        last = {"rows": len(lines) - 1, "sha256": hashlib.sha256(text).hexdigest()}
        return text + json.dumps(last).encode() + b"\n" + end

    def with_member(line: bytes, **members: object) -> bytes:
        return json.dumps({**json.loads(line), **members}).encode() + b"\n"

    changed = rows[0].replace(b'"rev": 1', b'"rev": 2')
    cases = {
        b"".join([header, changed, *rows[1:], footer]): "was changed since it was written",
        b"".join([header, *rows[1:], footer]): "was changed since it was written",
        b"".join([header, *rows]): "is missing, so that this is not the whole plan",
        b"".join([header, *rows, footer[:-5]]): "is cut off",
        b"".join([header, rows[0][:20]]): "is cut off",
        b"".join([header, *rows, footer, rows[0]]): "comes after the end of the plan",
        anew(header, rows[1], rows[0]): "line 3 is out of order",
        anew(header, rows[0], rows[0]): "line 3 is there twice",
        anew(header, b"{}\n"): "does not have the members",
        anew(header, b"[1]\n"): "is not a line of a plan",
        anew(header, b'{"scope": "s", "scope": "t"}\n'): "is not a line of a plan",
        anew(header, b"\xff\n"): "is not a line of a plan",
        anew(header, b"[" * 5000 + b"\n"): "is not a line of a plan",
        anew(header, with_member(rows[0], rev="1")): "rev must be a whole number",
        anew(header, with_member(rows[0], rev=True)): "rev must be a whole number",
        anew(header, with_member(rows[0], spawned_at=2**63)): "spawned_at is outside 64 bits",
        anew(header, with_member(rows[0], handle="\0")): "handle contains a NUL character",
        anew(header, with_member(rows[0], handle=None)): "handle must be a string",
        anew(header, with_member(rows[0], handle="\ud800")): "half of a surrogate pair",
        anew(header, with_member(rows[0], more=1)): "does not have the members",
        anew(header, with_member(rows[0], handle="x" * 2**20)): "is longer than 1048576 bytes",
        anew(
            with_member(header, version=2), rows[0]
        ): "version 2, and this release reads version 1",
        anew(with_member(header, format="x"), rows[0]): "is not a plan of",
        anew(with_member(header, scopes="s"), rows[0]): "has no scopes that can be read",
        anew(with_member(header, more=1), rows[0]): 'says "more", which no plan does',
        anew(with_member(header, job="drain_harvest"), rows[0]): "which cannot be applied",
        anew(with_member(header, policy={"defaults": {"max_age": 1}}), rows[0]): "max_age = 1",
        anew(with_member(header, ledger="else"), rows[0]): "was made on another ledger",
        anew(with_member(header, ledger_schema="else"), rows[0]): "was made on another ledger",
        anew(
            with_member(header, scopes=["else"]), rows[0]
        ): "of a scope that the plan was not made",
        anew(with_member(header, scopes=["\0"]), rows[0]): "scope contains a NUL character",
        anew(with_member(header, ledger="\ud800"), rows[0]): "half of a surrogate pair",
        b"": "is not a plan of",
        b"\x00\x01": "is not a plan of",
    }
    for text, said in cases.items():
        other.write_bytes(text)
        assert said in cli.refusal("apply", str(other), "--yes"), said

    assert "cannot be read" in cli.refusal("apply", str(tmp_path / "none"), "--yes")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for no_file in (tmp_path, pipe, Path("/dev/null")):
        assert "is no plain file" in cli.refusal("apply", str(no_file), "--yes")
    ledger.do("update maintenance.identity set id = gen_random_uuid()")
    assert "was made on another ledger" in cli.refusal("apply", str(path), "--yes")
    assert ledger.handles() == ["a", "b", "c", "d"]
    assert ledger.journal() == {}
    assert ledger.query("select * from maintenance.runs") == []


def test_the_policy_of_now_may_not_keep_more_than_the_plan(
    cli: CommandLine, ledger: Ledger, path: Path, tmp_path: Path
) -> None:
    """A plan by the file is refused where the file gives a planned scope other arms by now."""
    ledger.finished("a", "b")
    ledger.finished("c", "d", scope="t")
    policy = tmp_path / "policy.toml"
    policy.write_text("[defaults]\nkeep = 1\n[[override]]\nmatch = 't'\nkeep = 'off'\n")
    made = cli.json("plan", "reap", "--all-scopes", "--policy", str(policy), "-o", str(path))
    assert made["rows"] == 1

    assert "gives scope 's' another keep than the plan" in cli.refusal("apply", str(path), "--yes")
    policy.write_text("[defaults]\nkeep = 1\n[[override]]\nmatch = 't'\nkeep = 1\n")
    assert applied(cli, path, "--policy", str(policy)) == {"keep": 1}
    assert (ledger.handles("s"), ledger.handles("t")) == (["b"], ["c", "d"])


def test_a_plan_does_not_bring_its_own_stale_age(
    cli: CommandLine, ledger: Ledger, path: Path, tmp_path: Path
) -> None:
    """By which a flipped row is left to its writer: also where the plan was made by flags."""
    failed = {"status": "failed", "content": {"error": STALE_RUNNING_REAP_ATTRIBUTION}}
    ledger.agent("a", **failed, settled_at=LONG_AGO)
    policy = tmp_path / "policy.toml"
    given = {"MAINT_POLICY_FILE": str(policy)}
    for arms in ((), ("--max-age", "1h")):
        policy.write_text('[defaults]\nmax_age = "1h"\nstale_running_max_age = "15m"\n')
        plan = ("plan", "reap", "--scope", "s", *arms, "-o", str(path), "--force")
        assert cli.json(*plan, **given)["rows"] == 1

        policy.write_text('[defaults]\nmax_age = "1h"\nstale_running_max_age = "9999d"\n')

        refusal = cli.refusal("apply", str(path), "--yes", **given)
        assert "gives scope 's' another stale_running_max_age than the plan" in refusal
    assert ledger.handles() == ["a"]


def test_a_plan_may_have_any_name(cli: CommandLine, ledger: Ledger, tmp_path: Path) -> None:
    """As long as a name can be, and one that is no text."""
    for name, kept in ((b"\xff.plan", "a"), ("語".encode() * 83 + b".plan", "b")):
        ledger.finished("0", kept)
        path = os.fsdecode(bytes(tmp_path) + b"/" + name)
        cli.json("plan", *REAP, "-o", path)
        assert applied(cli, Path(path))["keep"] > 0
        assert ledger.handles() == [kept]


def test_guards_are_lifted_anew(cli: CommandLine, ledger: Ledger, path: Path) -> None:
    """What the plan was made with lifts nothing when it is applied."""
    ledger.finished("a", "b")
    cli.json("plan", "reap", "--scope", "s", *EVERY_FINISHED, "-o", str(path))

    refusal = cli.refusal("apply", str(path), "--yes")
    assert "keep = 0" in refusal
    assert "--override floors" in refusal
    assert "reap has no guard 'sightings'" in cli.refusal(
        "apply", str(path), "--yes", "--override", "sightings"
    )
    assert applied(cli, path, "--override", "floors") == {"keep": 2}


def test_slips_are_refused(cli: CommandLine, ledger: Ledger, path: Path, tmp_path: Path) -> None:
    ledger.finished("a", "b")
    reap = ("plan", "reap", "--scope", "s", "-o", str(path))
    for job in ("drain-harvest", "housekeeping", "audit-memory"):
        refusal = cli.refusal("plan", job, "--all-scopes", "-o", str(path))
        assert f"{job} cannot be planned: it" in refusal
    assert "no scope is named" in cli.refusal("plan", "reap", "-o", str(path))
    assert "contradict" in cli.refusal(*reap, "--all-scopes")
    assert "--stale-after is not for reap" in cli.refusal(*reap, "--stale-after", "1h")
    assert "there is nothing to plan" in cli.refusal(*reap)
    assert "--keep 0" in cli.refusal(*reap, "--keep", "0")
    assert "reap has no guard 'outage'" in cli.refusal(*reap, "--override", "outage")
    assert "holds" in cli.refusal(*reap, "--override", "holds")
    assert "MAINT_RELEASE_BACKEND is none" in cli.refusal(
        "plan", "release-sessions", "--scope", "s", "-o", str(path), MAINT_RELEASE_BACKEND="none"
    )
    cli.json(*reap, "--keep", "1")
    whole = path.read_bytes()
    assert "is there already" in cli.refusal(*reap, "--keep", "1")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    onto = (*reap[:4], "--keep", "1", "-o", str(pipe), "--force")
    assert "is no plain file" in cli.refusal(*onto)
    pipe.unlink()
    assert "is a folder" in cli.refusal(*reap[:4], "--keep", "1", "-o", str(tmp_path))
    nowhere = str(tmp_path / "none" / "a.plan")
    assert "a folder that is not there" in cli.refusal(*reap[:4], "--keep", "1", "-o", nowhere)
    assert "--yes" in cli.refusal("apply", str(path))
    assert path.read_bytes() == whole
    assert [each.name for each in tmp_path.iterdir()] == ["some.plan"]
    assert ledger.handles() == ["a", "b"]


def test_killed_in_the_middle_and_applied_again(
    cli: CommandLine, ledger: Ledger, path: Path
) -> None:
    """Every row is deleted, journaled and queued once."""
    ledger.finished(*(f"a{n:02}" for n in range(40)))
    cli.json("plan", *REAP, "-o", str(path))
    # It stops in the middle of its fifth batch, whose first statement waits for this lock.
    ledger.do(
        "create function public.stop() returns trigger language plpgsql as $$ begin"
        " if old.handle = 'a20' then perform pg_advisory_xact_lock(4711); end if;"
        " return old; end $$;"
        " create trigger stop before delete on public.background_agents"
        " for each row execute function public.stop()"
    )
    with psycopg.connect(ledger.url, autocommit=True) as gate:
        gate.execute("select pg_advisory_lock(4711)")
        with cli.start("apply", str(path), "--yes", MAINT_ROWS_PER_BATCH="4") as process:
            wait_until(
                lambda: ledger.query("select from pg_locks where objid = 4711 and not granted"),
                "the apply stands in its batch",
            )
            process.kill()
            process.wait()
    wait_until(
        lambda: not ledger.query("select from pg_locks where objid = 4711"),
        "its session is over",
    )
    gone = 40 - len(ledger.handles())
    assert 0 < gone < 39

    assert applied(cli, path) == {"keep": 39 - gone, "lost_race": gone}

    assert ledger.handles() == ["a39"]
    assert ledger.journal() == {"reap/keep": 39, "reap/lost_race": gone, "reap/run/succeeded": 1}
    assert [handle for handle, _ in ledger.queued()] == [f"a{n:02}" for n in range(39)]
