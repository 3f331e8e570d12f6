"""Asking the workers instead: what is put on record, what is sent, and what is refused."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from kombu import Connection
from psycopg.conninfo import make_conninfo

from store.database import Database
from tests.e2e.command_line import SECRET, CommandLine
from tests.e2e.deployment import valkey
from tests.e2e.placed import Ledger
from tests.ports import free_port

OVER_ALL = ("--all-scopes", "--yes")
OPERATOR = "sema-maintenance.operator"


@pytest.fixture
def ledger(plain_ledger: tuple[str, Database]) -> Iterator[Ledger]:
    with closing(Ledger(plain_ledger[0])) as ledger:
        yield ledger


@pytest.fixture
def cli(ledger: Ledger) -> CommandLine:
    return CommandLine(ledger.url)


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with valkey() as url:
        yield url


def on_record(ledger: Ledger) -> list[dict[str, Any]]:
    return ledger.query("select * from maintenance.requests order by requested_at")


def test_request_is_put_on_record_and_nothing_is_done_here(
    cli: CommandLine, ledger: Ledger
) -> None:
    ledger.finished("a", "b")

    document = cli.json(
        *("reap", "--scope", "s", "--scope", "t", "--scope", "s", "--enqueue"),
        *("--max-age", "36h", "--keep", "7", "--override", "fresh-flips"),
    )

    [request] = on_record(ledger)
    assert document["request_id"] == str(request["id"])
    assert (document["job"], document["state"]) == ("reap", "queued")
    assert (request["job"], request["scopes"]) == ("reap", ["s", "t"])
    assert request["policy"] == {"max_age": "36h", "keep": 7}
    assert request["overrides"] == ["fresh-flips"]
    assert (request["state"], request["run_id"]) == ("queued", None)
    assert "@" in request["requested_by"]
    assert abs(request["requested_at"] - ledger.now()) < 60_000
    assert ledger.handles() == ["a", "b"]
    assert ledger.query("select * from maintenance.runs") == []


@pytest.mark.parametrize(
    ("arguments", "job", "policy"),
    [
        (("reap",), "reap", None),
        (
            ("flip-stale-running", "--stale-after", "15m"),
            "flip_stale_running",
            {"stale_running_max_age": "15m"},
        ),
        (
            ("reconcile-parked", "--stale-claim-after", "90s"),
            "reconcile_parked",
            {"stale_claim_max_age": "90s"},
        ),
        (("release-sessions",), "release_sessions", None),
        (("drain-harvest",), "drain_harvest", None),
    ],
    ids=str,
)
def test_every_job_can_be_asked_for(
    cli: CommandLine, ledger: Ledger, arguments: tuple[str, ...], job: str, policy: object
) -> None:
    """Without flags the policy is left to the worker, whatever file there is here."""
    cli.json(*arguments, *OVER_ALL, "--enqueue")

    [request] = on_record(ledger)
    assert (request["job"], request["scopes"], request["policy"]) == (job, None, policy)


def test_audit_can_be_asked_for_in_the_workers_environment(
    cli: CommandLine, ledger: Ledger
) -> None:
    cli.json("audit-memory", "--enqueue")

    [request] = on_record(ledger)
    assert (request["job"], request["scopes"]) == ("audit_memory", None)
    assert ledger.query("select * from maintenance.runs") == []


def test_person_is_told_how_to_follow_it(cli: CommandLine, ledger: Ledger) -> None:
    ended = cli.run("reap", "--scope", "s", "--keep", "1", "--enqueue")

    [request] = on_record(ledger)
    assert (ended.code, ended.problems) == (0, [])
    assert f"`sema-maintenance history --request {request['id']}`" in ended.stdout
    assert "no broker is named in MAINT_BROKER_URL" in ended.stderr
    assert "the request stands" in ended.stderr


def test_request_of_a_paused_job_says_that_it_will_do_nothing(
    cli: CommandLine, ledger: Ledger
) -> None:
    """It stands all the same; of a scope that is not paused nothing is said."""
    asking = ("reap", "--keep", "1", "--enqueue", "--scope")
    cli.json("pause", "reap", "--scope", "s", "--reason", "restore under way")

    ended = cli.run(*asking, "s")

    assert (ended.code, ended.problems) == (0, [])
    assert "note: reap is paused in scope 's' since 20" in ended.stderr
    assert "until reap is resumed the request does nothing there" in ended.stderr
    assert "paused" not in cli.run(*asking, "t").stderr
    [pause] = cli.json(*asking, "s")["paused"]
    assert (pause["scope"], pause["reason"]) == ("s", "restore under way")
    assert len(on_record(ledger)) == 3


def test_message_goes_to_the_operators_queue_and_carries_the_id_alone(
    cli: CommandLine, ledger: Ledger, broker: str
) -> None:
    document = cli.json(
        *("reap", "--scope", "tenant/acme", "--keep", "3", "--enqueue"), MAINT_BROKER_URL=broker
    )

    assert document["problem"] is None
    with Connection(broker) as connection, connection.SimpleQueue(OPERATOR) as queue:
        message = queue.get(timeout=10)
        message.ack()
    assert message.headers["task"] == "maintenance.request"
    assert message.payload[:2] == [[], {"request_id": document["request_id"]}]
    said = json.dumps([message.headers, message.payload])
    assert "tenant/acme" not in said
    assert "keep" not in said


def test_broker_that_is_down_costs_one_line_and_the_request_stands(
    cli: CommandLine, ledger: Ledger
) -> None:
    ended = cli.run(
        *("reap", "--scope", "s", "--keep", "1", "--enqueue"),
        MAINT_BROKER_URL=f"redis://sema:{SECRET}@127.0.0.1:{free_port()}/0",
    )

    assert (ended.code, ended.problems) == (0, [])
    [note] = [line for line in ended.stderr.splitlines() if line.startswith("note: ")]
    assert "the broker does not take messages" in note
    assert "the request stands" in note
    assert SECRET not in ended.stdout + ended.stderr
    assert len(on_record(ledger)) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--scope", "s", "--keep", "1", "--dry-run"), "--enqueue and --dry-run contradict"),
        (("--keep", "1"), "no scope is named"),
        (("--scope", "s", "--all-scopes", "--keep", "1"), "contradict each other"),
        (("--all-scopes", "--keep", "1"), "--all-scopes needs --yes"),
        (("--scope", "s", "--keep", "0"), "keeps no finished row at all"),
        (("--scope", "s", "--max-age", "10m"), "is under 1h"),
        (("--scope", "s", "--max-age", "10"), "no unit"),
        (("--scope", "", "--keep", "1"), "cannot be empty"),
        (("--scope", "s", "--keep", "1", "--override", "holds"), "cannot be lifted"),
        (("--scope", "s", "--keep", "1", "--override", "outage"), "reap has no guard 'outage'"),
        (("--scope", "s", "--policy", "p.toml"), "--policy and --enqueue contradict"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else None,
)
def test_what_is_refused_here_and_now_is_refused_as_a_request_too(
    cli: CommandLine, ledger: Ledger, arguments: tuple[str, ...], said: str
) -> None:
    assert said in cli.refusal("reap", *arguments, "--enqueue")
    assert on_record(ledger) == []


def test_insert_on_requests_is_all_that_asking_needs(ledger: Ledger) -> None:
    role = f"asks_{uuid4().hex[:8]}"
    ledger.do(f"create role {role} login; grant usage on schema maintenance to {role}")
    try:
        cli = CommandLine(make_conninfo(ledger.url, user=role))
        refused = cli.refusal("reap", "--scope", "s", "--keep", "1", "--enqueue")
        assert f"role {role} lacks the privilege INSERT on maintenance.requests" in refused

        ledger.do(f"grant insert on maintenance.requests to {role}")
        document = cli.json("reap", "--scope", "s", "--keep", "1", "--enqueue")
        # Whether the job is paused may be read by others.
        assert document["paused"] is None
    finally:
        ledger.do(f"drop owned by {role}; drop role {role}")

    assert len(on_record(ledger)) == 1


def test_database_without_the_table_is_refused_with_the_remedy(
    cli: CommandLine, ledger: Ledger
) -> None:
    with ledger.altered(
        "alter table maintenance.requests rename to away",
        "alter table maintenance.away rename to requests",
    ):
        refused = cli.refusal("reap", "--scope", "s", "--keep", "1", "--enqueue")

    assert "no maintenance.requests" in refused
    assert "sema-maintenance migrate" in refused


# History


def test_history_lists_what_nobody_has_taken_yet_among_the_runs(
    cli: CommandLine, ledger: Ledger
) -> None:
    ledger.finished("a")
    cli.json("reap", "--scope", "s", "--keep", "5")
    document = cli.json("flip-stale-running", *OVER_ALL, "--stale-after", "1h", "--enqueue")

    queued, done = cli.json("history")
    [alone] = cli.json("history", "--request", document["request_id"])
    shown = cli.run("history").stdout

    assert (queued["job"], queued["state"]) == ("flip_stale_running", "queued")
    assert queued["request"]["policy"] == {"stale_running_max_age": "1h"}
    assert (done["job"], done["state"], done["request"]) == ("reap", "succeeded", None)
    assert alone == queued
    assert "no worker has taken it yet" in shown
    assert "stale_running_max_age 1h, all scopes" in shown
    assert [each["job"] for each in cli.json("history", "--job", "reap")] == ["reap"]
    assert [each["state"] for each in cli.json("history", "--limit", "1")] == ["queued"]


def test_history_says_why_a_request_was_refused(cli: CommandLine, ledger: Ledger) -> None:
    document = cli.json("reap", "--scope", "s", "--keep", "2", "--enqueue")
    ledger.do("update maintenance.requests set state = 'refused', error = 'it was too late'")

    [refused] = cli.json("history", "--request", document["request_id"])

    assert (refused["state"], refused["error"]) == ("refused", "it was too late")
    assert "it was too late" in cli.run("history").stdout


def test_request_that_was_never_made_is_no_empty_list(cli: CommandLine) -> None:
    unknown = UUID(int=5)

    assert str(unknown) in cli.refusal("history", "--request", str(unknown))
    assert "not a valid UUID" in cli.refusal("history", "--request", "5")


def test_embedded_database_takes_requests_as_well(tmp_path: Path) -> None:
    """Its `run` finds them by looking; no broker outside of that process is there to be told."""
    from worker.embedded import embedded_postgres

    folder = tmp_path / "postgres"
    folder.mkdir()
    tmp_path.chmod(0o711)
    with embedded_postgres(folder, create=True) as url:
        with Database(url) as database:
            from store.migrate import create_ledger, migrate

            create_ledger(database)
            migrate(database)
        CommandLine(None, MAINT_DATA_DIR=str(tmp_path)).json(
            "reap", "--scope", "s", "--keep", "1", "--enqueue"
        )
        with psycopg.connect(url) as connection:
            found = connection.execute("select state from maintenance.requests").fetchall()
    assert found == [("queued",)]
