"""What the frame promises an operator who asked the workers for something, without a broker.

A request is a row, which others than our own command can write: what it says is judged again.
"""

import json
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.rows import dict_row

from config.policy import Policy, parse_policy
from config.settings import load_settings
from store import requests, runs
from store.agents import PostgresAgentStore
from store.database import Database
from store.holds import place
from tests.store.stores import ended
from worker import frame
from worker.context import Process

FILE = parse_policy('[defaults]\nmax_age = "1h"\nkeep = 50\n', "policy.toml")
SCOPES = ["a", "b", "c", "d", "e"]
ROWS = 4
LIFETIME = timedelta(minutes=2)


class Raw(NamedTuple):
    """A policy as it is written into the row."""

    text: str


class Asked:
    """A ledger of five scopes with four old rows each, a worker's process, and requests to it."""

    def __init__(self, url: str, database: Database) -> None:
        self.url, self.database = url, database
        self.process = self.worker()
        store = PostgresAgentStore(database)
        for scope in SCOPES:
            for number in range(ROWS):
                store.put(ended(f"row {number}", scope=scope))

    def worker(self, policy: Policy = FILE, **settings: str) -> Process:
        given = {"DATABASE_URL": self.url, "SCOPES_PER_PART": "2", "ROWS_PER_BATCH": "2"}
        environ = {f"MAINT_{name}": value for name, value in {**given, **settings}.items()}
        return Process(load_settings(environ), policy)

    def rows(self, query: str, *params: object) -> list[dict[str, Any]]:
        with psycopg.connect(self.url, autocommit=True, row_factory=dict_row) as connection:
            return connection.execute(query.encode(), params or None).fetchall()

    def do(self, statement: str, *params: object) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode(), params or None)

    def row(self, **columns: object) -> UUID:
        """A request as anybody with INSERT can write it."""
        given: dict[str, object] = {
            "id": uuid4(),
            "job": "reap",
            "requested_by": "ada@ops",
            "requested_at": self.rows("select (extract(epoch from now()) * 1000)::bigint as n")[0][
                "n"
            ],
            **columns,
        }
        if "policy" in columns:
            policy = columns["policy"]
            given["policy"] = policy.text if isinstance(policy, Raw) else json.dumps(policy)
        names, places = ", ".join(given), ", ".join(["%s"] * len(given))
        statement = f"insert into maintenance.requests ({names}) values ({places})"
        self.do(statement, *given.values())
        request_id = given["id"]
        assert isinstance(request_id, UUID)
        return request_id

    def left(self) -> dict[str, int]:
        found = self.rows(
            "select scope, count(*)::int as n from public.background_agents group by 1"
        )
        return {row["scope"]: row["n"] for row in found}

    def request(self, request_id: UUID) -> requests.Request:
        found = requests.find(self.database, request_id)
        assert found is not None
        return found

    def run_of(self, request_id: UUID) -> runs.Run:
        run_id = self.request(request_id).run_id
        assert run_id is not None
        run = runs.find_run(self.database, run_id)
        assert run is not None
        return run


@pytest.fixture
def asked(plain_ledger: tuple[str, Database]) -> Iterator[Asked]:
    asked = Asked(*plain_ledger)
    yield asked
    asked.process.close()


def work_off(process: Process, parts: list[tuple[UUID, int]]) -> int:
    """Deliver each message, and those that follow from it; gives how many there were."""
    delivered = 0
    while parts:
        delivered += 1
        parts += frame.work(process, *parts.pop(0))
    return delivered


def test_request_is_done_by_its_own_policy_in_the_scopes_it_names(asked: Asked) -> None:
    """The file's ages, which name much more, have no say; who asked is on record."""
    request_id = asked.row(scopes=["d", "b", "b"], policy={"keep": 3}, overrides=["fresh-flips"])

    parts = [*frame.take(asked.process, request_id)]
    work_off(asked.process, parts)

    assert asked.left() == {"a": 4, "b": 3, "c": 4, "d": 3, "e": 4}
    run = asked.run_of(request_id)
    assert (run.state, run.report, run.slot) == ("succeeded", {"keep": 2}, None)
    assert (run.requested_by, run.overrides) == ("ada@ops", ("fresh-flips",))


def test_request_for_everything_finds_what_is_due_and_is_cut_into_parts(asked: Asked) -> None:
    request_id = asked.row(policy={"keep": 3})

    parts = [*frame.take(asked.process, request_id)]

    assert [number for _, number in parts] == [1, 2, 3]
    work_off(asked.process, parts)
    assert asked.run_of(request_id).report == {"keep": 5}
    assert set(asked.left().values()) == {3}


def test_request_without_a_policy_leaves_it_to_the_worker_that_does_it(asked: Asked) -> None:
    request_id = asked.row()

    work_off(asked.process, [*frame.take(asked.process, request_id)])

    assert asked.run_of(request_id).report == {"max_age": 20}


def test_request_with_nothing_due_is_a_success_without_parts(asked: Asked) -> None:
    request_id = asked.row(policy={"keep": 1000})

    assert [*frame.take(asked.process, request_id)] == []

    assert (asked.run_of(request_id).state, asked.run_of(request_id).report) == ("succeeded", {})


def test_request_for_a_job_that_knows_no_scopes_is_one_part(asked: Asked) -> None:
    request_id = asked.row(job="release_sessions")

    assert work_off(asked.process, [*frame.take(asked.process, request_id)]) == 1
    assert asked.run_of(request_id).state == "succeeded"


def test_request_delivered_again_does_nothing_more(
    asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    request_id = asked.row(policy={"keep": 3})
    work_off(asked.process, [*frame.take(asked.process, request_id)])

    with caplog.at_level(logging.INFO, "sema_maintenance"):
        assert [*frame.take(asked.process, request_id)] == []
        assert [*frame.take(asked.process, uuid4())] == []

    assert [record.message for record in caplog.records] == ["request_passed_over"] * 2
    assert len(runs.list_runs(asked.database, "reap", 10)) == 1


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"job": "no_such_job", "requested_at": 0}, "there is no such job"),
        ({"job": "os.system('x')", "requested_at": 0}, "there is no such job"),
        ({"scopes": []}, "names no scope"),
        ({"scopes": ["a", ""]}, "an empty one"),
        ({"scopes": ["a", None]}, "an empty one"),
        ({"job": "audit_memory", "scopes": ["a"]}, "knows no scopes"),
        ({"overrides": ["holds"], "requested_at": 0}, "nobody took it within 1d"),
        ({"overrides": [None]}, "no guard"),
        ({"overrides": ["floors", "outage"]}, "reap has no guard 'outage'; it has fresh-flips, "),
        ({"job": "drain_harvest", "overrides": ["sightings"]}, "drain_harvest has no guard"),
        ({"requested_by": "  "}, "who asks"),
        ({"requested_by": "x" * 10_000}, "who asks"),
        ({"policy": []}, "not an object"),
        ({"policy": "30d"}, "not an object"),
        ({"policy": {}}, "sets none of max_age, keep"),
        ({"policy": {"keep": None}}, "sets none of max_age, keep"),
        ({"policy": {"keep": "off"}}, "sets nothing"),
        ({"policy": {"keep": -1}}, "not a whole number"),
        ({"policy": {"keep": True}}, "not a whole number"),
        ({"policy": {"max_age": 5}}, "not a text with a unit"),
        ({"policy": {"max_age": "30"}}, "no unit"),
        ({"policy": {"max_agge": "30d"}}, 'did you mean "max_age"?'),
        ({"policy": {"stale_running_max_age": "1h"}}, "not a known key"),
        ({"job": "release_sessions", "policy": {"keep": 1}}, "release_sessions has none"),
        ({"policy": {"keep": 0}}, "keeps no finished row at all"),
        ({"policy": {"max_age": "5m"}}, "is under 1h"),
        ({"requested_at": 0}, "nobody took it within 1d"),
    ],
    ids=str,
)
def test_request_that_cannot_be_done_is_refused_on_record_and_nothing_is_done(
    asked: Asked, caplog: pytest.LogCaptureFixture, columns: dict[str, object], said: str
) -> None:
    request_id = asked.row(**columns)

    with caplog.at_level(logging.INFO, "sema_maintenance"):
        assert [*frame.take(asked.process, request_id)] == []

    refused = asked.request(request_id)
    assert refused.state == "refused"
    assert refused.error is not None
    assert said in refused.error
    assert "\n" not in refused.error
    assert [record.message for record in caplog.records] == ["request_refused"]
    assert asked.rows("select * from maintenance.runs") == []
    assert set(asked.left().values()) == {ROWS}


@pytest.mark.parametrize("columns", [{"job": "compact"}, {"overrides": ["tides"]}], ids=str)
def test_request_that_only_a_newer_release_can_do_is_left_to_it(
    asked: Asked, columns: dict[str, object]
) -> None:
    """Its message, and the poll, leave it queued until it expires."""
    request_id = asked.row(**columns)
    asked.do("update maintenance.requests set requested_at = requested_at - 60000")

    assert [*frame.take(asked.process, request_id)] == []
    assert [*frame.poll(asked.process, timedelta(minutes=1))] == []
    assert asked.request(request_id).state == "queued"

    asked.do("update maintenance.requests set requested_at = 0")
    assert [*frame.poll(asked.process, timedelta(minutes=1))] == []
    assert asked.request(request_id).state == "refused"


def test_floor_is_lifted_by_name_alone(asked: Asked) -> None:
    request_id = asked.row(policy={"keep": 0}, scopes=["a"], overrides=["floors"])

    work_off(asked.process, [*frame.take(asked.process, request_id)])

    assert "a" not in asked.left()


def test_request_that_no_policy_gives_anything_to_do_is_refused_with_the_reason(
    asked: Asked,
) -> None:
    """Whoever asked reads why nothing was done, instead of a success."""
    request_id = asked.row()

    assert [*frame.take(asked.worker(Policy.empty()), request_id)] == []

    refused = asked.request(request_id)
    assert refused.error == (
        "the policy (no policy file) sets no max_age and no keep for any scope"
    )


def test_policy_that_is_bent_after_it_was_judged_changes_nothing(asked: Asked) -> None:
    """The run has taken over what was asked for."""
    request_id = asked.row(policy={"keep": 3})
    parts = [*frame.take(asked.process, request_id)]
    asked.do("""update maintenance.requests set policy = '{"keep": 1}'""")

    work_off(asked.process, parts)

    assert asked.run_of(request_id).state == "succeeded"
    assert set(asked.left().values()) == {3}


def test_request_that_says_it_was_taken_rules_no_run(asked: Asked) -> None:
    """Whoever may write requests writes one that names a tick's run: its policy is not asked."""
    process = asked.worker(parse_policy("[defaults]\nkeep = 3", "policy.toml"))
    parts = [*frame.tick(process, "reap")]
    [run] = asked.rows("select id from maintenance.runs")
    forged = asked.row(state="taken", run_id=run["id"], policy={"keep": 1})

    work_off(process, parts)

    assert set(asked.left().values()) == {3}
    assert requests.of_runs(asked.database, [run["id"]]) == {}
    assert asked.request(forged).state == "taken"


@pytest.mark.parametrize(
    "columns",
    [
        {"requested_at": -(2**63)},
        {"policy": Raw('{"keep": 1e5000}')},
        {"policy": Raw("[" * 3000 + "]" * 3000)},
        {"policy": Raw('{"keep": "' + "x" * 20_000 + '"}')},
        {"scopes": [["a", "b"], ["c", "d"]]},
    ],
    ids=["long ago", "huge number", "deep", "long", "two dimensions"],
)
def test_poisoned_request_is_refused_and_holds_up_nobody(
    asked: Asked, columns: dict[str, Any]
) -> None:
    """It is the oldest, so that the poll meets it first; the good one behind it is done."""
    poisoned = asked.row(**{"requested_at": 1} | columns)
    good = asked.row(policy={"keep": 3})
    asked.do(
        "update maintenance.requests set requested_at = requested_at - 60000 where id = %s", good
    )

    work_off(asked.process, [*frame.poll(asked.process, timedelta(minutes=2))])

    assert asked.request(poisoned).state == "refused"
    assert asked.request(poisoned).error
    assert asked.run_of(good).state == "succeeded"
    assert {r.request_id for r in requests.not_taken(asked.database, None, 10)} == {poisoned}


def test_ticks_parts_know_nothing_of_requests(asked: Asked) -> None:
    request_id = asked.row(policy={"keep": 3}, scopes=["a"])
    asked_parts = [*frame.take(asked.process, request_id)]

    work_off(asked.process, [*frame.tick(asked.process, "reap")])

    assert asked.left() == {}
    work_off(asked.process, asked_parts)
    assert asked.run_of(request_id).report == {}


# Turns


def test_part_whose_turn_is_over_goes_on_as_one_more_part_until_all_is_done(
    asked: Asked,
) -> None:
    """One that is to end does a batch in hand and leaves the rest to another worker."""
    request_id = asked.row(policy={"keep": 1}, scopes=["a"])
    [(run_id, number)] = frame.take(asked.process, request_id)
    ending = asked.worker()
    ending.stopping.set()

    rest = frame.work(ending, run_id, number)

    assert rest == [(run_id, 2)]
    assert asked.left()["a"] == 2
    assert asked.run_of(request_id).state == "running"
    work_off(asked.process, rest)
    run = asked.run_of(request_id)
    assert (run.state, run.more, run.report) == ("succeeded", False, {"keep": 3})
    assert asked.left()["a"] == 1
    ending.close()


def test_ticks_part_whose_turn_is_over_leaves_the_rest_to_the_next_tick(asked: Asked) -> None:
    asked.process.stopping.set()

    for run_id, number in frame.tick(asked.process, "reap"):
        assert frame.work(asked.process, run_id, number) == []


# The poll


def later(asked: Asked, seconds: int) -> None:
    """Let that much time pass for every request and every message of a part."""
    ms = seconds * 1000
    asked.do(f"update maintenance.requests set requested_at = requested_at - {ms}")
    asked.do(f"update maintenance.run_parts set queued_at = queued_at - {ms}")


def test_poll_takes_requests_whose_message_was_lost(asked: Asked) -> None:
    request_id = asked.row(policy={"keep": 3})
    assert [*frame.poll(asked.process, LIFETIME)] == []
    later(asked, 10)

    parts = [*frame.poll(asked.process, LIFETIME)]

    assert len(parts) == 3
    assert [*frame.poll(asked.process, LIFETIME)] == []
    work_off(asked.process, parts)
    assert asked.run_of(request_id).report == {"keep": 5}


def test_poll_sends_parts_again_once_their_message_must_have_expired(asked: Asked) -> None:
    parts = [*frame.take(asked.process, asked.row(policy={"keep": 3}))]
    frame.work(asked.process, *parts[0])
    later(asked, 60)
    assert [*frame.poll(asked.process, LIFETIME)] == []
    later(asked, 120)

    assert [*frame.poll(asked.process, LIFETIME)] == parts[1:]


def test_parts_of_a_job_that_this_release_does_not_know_are_left_alone_until_they_are_given_up(
    asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a downgrade: told once, never sent again, and lost when nobody came for them."""
    request_id = asked.row(policy={"keep": 1}, scopes=["a"])
    [part] = frame.take(asked.process, request_id)
    asked.do("update maintenance.runs set job = 'of_a_newer_release'")

    for _ in range(2):
        assert frame.work(asked.process, *part) == []
        later(asked, 180)
        assert [*frame.poll(asked.process, LIFETIME)] == []

    told = [r for r in caplog.records if r.message == "part_left_to_newer_release"]
    assert [vars(record)["job"] for record in told] == ["of_a_newer_release"]
    later(asked, 3600 * 24 * 400)
    assert [*frame.poll(asked.process, LIFETIME)] == []
    assert asked.run_of(request_id).state == "failed"


def test_part_that_comes_no_further_than_what_it_passes_over_is_not_carried_on(
    asked: Asked,
) -> None:
    """Its turn is over after one batch of rows that are held; the run says that there is more."""
    place(asked.database, "a", "row 0", "kept", "ada")
    place(asked.database, "a", "row 1", "kept", "ada")
    worker = asked.worker()
    worker.settings = worker.settings.model_copy(update={"job_budget": timedelta(0)})
    request_id = asked.row(policy={"max_age": "1h"}, scopes=["a"])
    [part] = frame.take(worker, request_id)

    rest = frame.work(worker, *part)
    assert rest == [(part[0], 2)]
    assert frame.work(worker, *rest[0]) == []

    run = asked.run_of(request_id)
    assert (run.state, run.more, run.report) == ("succeeded", True, {"skipped/hold": 2})
    assert asked.left()["a"] == ROWS
    worker.close()


def test_poll_goes_on_past_a_request_that_is_refused(asked: Asked) -> None:
    bad, good = asked.row(job="no_such_job", requested_at=0), asked.row(policy={"keep": 3})
    later(asked, 10)

    assert len([*frame.poll(asked.process, LIFETIME)]) == 3

    assert asked.request(bad).state == "refused"
    assert asked.request(good).state == "taken"


def test_poll_gives_up_a_run_whose_process_died_and_whoever_asked_can_read_so(
    asked: Asked,
) -> None:
    """Also of a job that never ticks."""
    request_id = asked.row(job="audit_memory")
    [(run_id, number)] = frame.take(asked.process, request_id)
    runs.start_part(asked.database, run_id, number)
    asked.do("update maintenance.run_parts set started_at = started_at - 3600000")

    assert [*frame.poll(asked.process, LIFETIME)] == []

    run = asked.run_of(request_id)
    assert (run.state, run.error) == ("failed", "1 parts never came back")


def test_database_out_of_reach_is_a_line_in_the_log_and_no_more(
    asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    process = asked.worker(DATABASE_URL="postgresql://sema:hunter2@127.0.0.1:1/sema")

    assert [*frame.take(process, uuid4())] == []
    assert [*frame.poll(process, LIFETIME)] == []

    assert [record.message for record in caplog.records] == ["request_failed", "poll_failed"]
    assert "hunter2" not in caplog.text
