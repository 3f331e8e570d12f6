"""The drain of transcripts that another system holds: what it is asked, and what each answer does.

The system is a real HTTP server, asked by the client of the worker's own.
"""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from store.database import Database
from store.errors import ReleaseStopped
from store.release_elsewhere import AWAY_MAX
from tests.store.outbox import DRAIN, LEASE_MS, SECOND_MS, SETTLED, Outbox
from tests.store.stores import NOW, OTHER_SCOPE, SCOPE, agent
from tests.transcript_system import Handler, TranscriptSystem, transcript_system
from worker.release_http import HttpRelease

LIMIT = timedelta(seconds=20)
SHORT = timedelta(milliseconds=300)
AT_A_TIME = 4


@pytest.fixture
def system() -> Iterator[TranscriptSystem]:
    with transcript_system() as system:
        yield system


@pytest.fixture
def outbox(plain_ledger: tuple[str, Database]) -> Outbox:
    return Outbox(*plain_ledger)


Client = Callable[..., HttpRelease]


@pytest.fixture
def client(system: TranscriptSystem) -> Iterator[Client]:
    """Makes clients of the system; they are closed after the test."""
    made: list[HttpRelease] = []

    def make(
        limit: timedelta = LIMIT, at_a_time: int = AT_A_TIME, token: Path | None = None
    ) -> HttpRelease:
        made.append(HttpRelease(system.template, token, limit, at_a_time))
        return made[-1]

    yield make
    for each in made:
        each.close()


# Verdicts, on every layout of the ledger


def test_only_what_nobody_names_and_nobody_wrote_is_asked_for(
    ledger: tuple[str, Database], system: TranscriptSystem, client: Client
) -> None:
    """Our own row of a transcript, where there is one, is judged and left alone."""
    outbox = Outbox(*ledger)
    outbox.talk("ours", written_at=SETTLED)
    outbox.talk("revived", written_at=SETTLED + 1)
    outbox.queue("theirs", "ours", "revived", "named")
    outbox.agents.put(agent("b", session_id="named"))
    system.hold("theirs", "ours", "revived", "named", "another", scope=SCOPE)
    system.hold("theirs", scope=OTHER_SCOPE)

    assert outbox.preview(backend="http") == {"released": 2, "suspect": 1, "named": 1}
    assert outbox.ask(client()) == {"released": 2, "suspect": 1, "named": 1}

    left = {(SCOPE, each) for each in ("revived", "named", "another")}
    assert system.held == left | {(OTHER_SCOPE, "theirs")}
    assert outbox.entries("session_id", "state", "claim_id") == [("revived", "suspect", None)]
    assert outbox.talks() == [(SCOPE, "ours"), (SCOPE, "revived")]
    assert outbox.ask(client(), NOW + 10 * LEASE_MS) == {}


def test_one_transcript_of_two_rows_is_asked_for_once_and_clears_its_suspects(
    outbox: Outbox, system: TranscriptSystem, client: Client
) -> None:
    outbox.talk("shared", written_at=SETTLED + 10)
    outbox.row("a", "shared")
    assert outbox.reap() == 1
    assert outbox.ask(client()) == {"suspect": 1}
    for handle in ("b", "c"):
        outbox.row(handle, "shared", at=SETTLED + 20)
    assert outbox.reap() == 2
    system.hold("shared", scope=SCOPE)

    assert outbox.ask(client()) == {"released": 1, "cleared": 1}

    assert len(system.asked) == 1
    assert outbox.entries("*") == []


# What it is asked


def test_every_character_of_a_name_is_encoded(
    outbox: Outbox, system: TranscriptSystem, client: Client
) -> None:
    """A slash, a question mark or a percent sign in a name never ends its part of the path."""
    names = ["a/b", "a?b#c", "100%", "%2F", "ä\u20ac", "a b+c&d=e;f", "a..b", "a\\b", "~-._"]
    scope = "tenant/a c"
    outbox.queue(*names, scope=scope)
    system.hold(*names, scope=scope)

    assert outbox.ask(client()) == {"released": len(names)}

    assert system.held == set()
    assert "/scopes/tenant%2Fa%20c/sessions/a%2Fb" in system.paths()
    pattern = re.compile(r"/scopes/tenant%2Fa%20c/sessions/(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})+")
    assert all(pattern.fullmatch(path) for path in system.paths())


@pytest.mark.parametrize("name", ["", ".", "..", "a/../b", "../b", "a/.", "a\\..\\b"])
def test_a_name_that_a_proxy_would_take_for_a_step_up_is_never_asked_for(
    outbox: Outbox, system: TranscriptSystem, client: Client, name: str
) -> None:
    """Such a request could delete a neighbour, or everything; the entry is dead at once."""
    outbox.queue(name)

    assert outbox.ask(client()) == {"failed": 1, "dead": 1}

    assert system.asked == []
    assert outbox.entries("state", "attempts", "last_error") == [
        ("dead", 1, "its scope or session is empty, or has a part . or ..")
    ]


def test_several_are_asked_for_at_a_time_and_each_on_a_connection_that_is_kept(
    outbox: Outbox, system: TranscriptSystem, client: Client
) -> None:
    sessions = [f"talk {number:02}" for number in range(4 * AT_A_TIME)]
    outbox.queue(*sessions)
    system.hold(*sessions, scope=SCOPE)
    together = threading.Barrier(AT_A_TIME)
    system.behave = lambda _: together.wait(60) < 0

    assert outbox.ask(client()) == {"released": len(sessions)}

    assert len({request.connection for request in system.asked}) == AT_A_TIME


def test_a_kept_connection_that_has_gone_is_made_anew(
    outbox: Outbox, system: TranscriptSystem, client: Client
) -> None:
    """The system closes each after its answer without saying so: nothing fails of it."""

    def forget(handler: Handler) -> bool:
        system.held.discard(handler.key)
        handler.say(204)
        return handler.hang_up()

    outbox.queue("a", "b", "c")
    system.hold("a", "b", "c", scope=SCOPE)
    system.behave = forget

    assert outbox.ask(client(at_a_time=1)) == {"released": 3}
    assert system.held == set()


# Answers


@pytest.mark.parametrize("status", [200, 202, 204])
def test_any_success_is_a_release(
    outbox: Outbox, system: TranscriptSystem, client: Client, status: int
) -> None:
    outbox.queue("talk")
    system.answers(status)

    assert outbox.ask(client()) == {"released": 1}
    assert outbox.entries("*") == []


@pytest.mark.parametrize("status", [404, 410])
def test_what_is_gone_already_is_done(
    outbox: Outbox, system: TranscriptSystem, client: Client, status: int
) -> None:
    outbox.queue("talk")
    system.answers(status)

    assert outbox.ask(client()) == {"absent": 1}
    assert outbox.entries("*") == []


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (301, "301 Moved Permanently; a redirect is not followed: correct MAINT_RELEASE_URL"),
        (307, "307 Temporary Redirect; a redirect is not followed: correct MAINT_RELEASE_URL"),
        (304, "304 Not Modified; a redirect is not followed: correct MAINT_RELEASE_URL"),
        (400, "400 Bad Request"),
        (409, "409 Conflict"),
        (500, "500 Internal Server Error"),
        (599, "599"),
    ],
)
def test_any_other_answer_is_a_failure_that_is_tried_again(
    outbox: Outbox, system: TranscriptSystem, client: Client, status: int, said: str
) -> None:
    """A redirect is not followed, and nothing but a status is taken from what was answered."""
    outbox.queue("talk")
    system.hold("talk", scope=SCOPE)
    elsewhere = f"http://127.0.0.1:{system.port}/elsewhere"
    system.answers(status, Location=elsewhere, X_Secret="s3cret-word")

    assert outbox.ask(client()) == {"failed": 1}

    assert system.paths() == [f"/scopes/{SCOPE}/sessions/talk"]
    assert outbox.entries("state", "attempts", "claim_id", "not_before", "last_error") == [
        (
            "pending",
            1,
            None,
            NOW + 30 * SECOND_MS,
            f"the system that holds the transcripts answered {said}",
        )
    ]
    system.behave = lambda _: False
    assert outbox.ask(client(), NOW + 30 * SECOND_MS - 1) == {}
    assert outbox.ask(client(), NOW + 30 * SECOND_MS) == {"released": 1}


def test_after_its_last_attempt_an_entry_is_dead_and_each_failure_counted_once(
    outbox: Outbox, system: TranscriptSystem, client: Client
) -> None:
    drain = replace(DRAIN, attempts=4, backoff_max=timedelta(seconds=90))
    outbox.queue("talk")
    system.answers(500)
    now = NOW

    for attempt, pause_s in enumerate([30, 60, 90], start=1):
        assert outbox.ask(client(), now, drain) == {"failed": 1}
        now += pause_s * SECOND_MS
        assert outbox.entries("state", "attempts", "not_before") == [("pending", attempt, now)]
    assert outbox.ask(client(), now, drain) == {"failed": 1, "dead": 1}

    assert outbox.entries("state", "attempts") == [("dead", 4)]
    assert outbox.ask(client(), now + 10 * LEASE_MS, drain) == {}
    assert outbox.counted() == {"failed": 4, "dead": 1}
    assert len(system.asked) == 4


def hangs(handler: Handler) -> bool:
    return handler.hang()


def hangs_in_headers(handler: Handler) -> bool:
    handler.write(b"HTTP/1.1 204 No Content\r\nServer: slow\r\n")
    return handler.hang()


def drips(handler: Handler) -> bool:
    """Sends something well within any time-out, and never comes to an end."""
    handler.write(b"HTTP/1.1 204 No Content\r\n")
    while not handler.system.over.wait(0.02):
        handler.write(b"X-More: 1\r\n")
    return handler.hang()


@pytest.mark.parametrize("behaviour", [hangs, hangs_in_headers, drips])
def test_a_request_takes_no_longer_than_it_may(
    outbox: Outbox,
    system: TranscriptSystem,
    client: Client,
    behaviour: Callable[[Handler], bool],
) -> None:
    outbox.queue("talk")
    system.behave = behaviour

    assert outbox.ask(client(SHORT)) == {"failed": 1}

    assert outbox.entries("state", "last_error") == [
        ("pending", "the system that holds the transcripts did not answer within 0.3s")
    ]


def hangs_in_body(handler: Handler) -> bool:
    handler.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
    return handler.hang()


def never_ends_its_body(handler: Handler) -> bool:
    handler.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while not handler.system.over.is_set() and not handler.wfile.closed:
        try:
            handler.wfile.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        except OSError:
            break
    return handler.hang_up()


def closes_in_body(handler: Handler) -> bool:
    handler.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
    return handler.hang_up()


@pytest.mark.parametrize("behaviour", [hangs_in_body, never_ends_its_body, closes_in_body])
def test_the_status_is_what_counts_whatever_becomes_of_the_body(
    outbox: Outbox,
    system: TranscriptSystem,
    client: Client,
    behaviour: Callable[[Handler], bool],
) -> None:
    """Nobody reads it but so far as the connection can be used again then."""
    outbox.queue("a", "b")
    system.behave = behaviour

    assert outbox.ask(client(at_a_time=1)) == {"released": 2}


def hangs_up(handler: Handler) -> bool:
    return handler.hang_up()


def speaks_something_else(handler: Handler) -> bool:
    handler.write(b"220 mail.example ESMTP s3cret-word\r\n")
    return handler.hang_up()


def floods_with_headers(handler: Handler) -> bool:
    handler.write(b"HTTP/1.1 204 No Content\r\n" + b"X-More: 1\r\n" * 5000 + b"\r\n")
    return handler.hang_up()


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (hangs_up, "cannot be reached: the connection was closed"),
        (speaks_something_else, "answered something that is not HTTP"),
        (floods_with_headers, "answered something that is not HTTP"),
    ],
)
def test_a_connection_that_comes_to_nothing_is_a_failure(
    outbox: Outbox,
    system: TranscriptSystem,
    client: Client,
    behaviour: Callable[[Handler], bool],
    said: str,
) -> None:
    outbox.queue("talk")
    system.behave = behaviour

    assert outbox.ask(client()) == {"failed": 1}

    assert outbox.entries("last_error") == [(f"the system that holds the transcripts {said}",)]


@pytest.mark.parametrize(
    ("host", "said"),
    [("127.0.0.1:1", "cannot be reached"), ("nowhere.invalid", "has a name that was not found")],
)
def test_a_system_that_is_not_there_is_a_failure(outbox: Outbox, host: str, said: str) -> None:
    outbox.queue("talk")

    with closing(HttpRelease(f"http://{host}/{{scope}}/{{session_id}}", None, LIMIT, 1)) as nobody:
        assert outbox.ask(nobody) == {"failed": 1}

    [(error,)] = outbox.entries("last_error")
    assert str(error).startswith(f"the system that holds the transcripts {said}")


# Answers that end the drain


@pytest.mark.parametrize("status", [401, 403])
def test_who_is_not_let_in_stops_and_uses_no_attempt_up(
    outbox: Outbox, system: TranscriptSystem, client: Client, status: int
) -> None:
    """Nothing more is asked for in this run; what it would have been is due as before."""
    sessions = [f"talk {number}" for number in range(3 * AT_A_TIME)]
    outbox.queue(*sessions)
    system.hold(*sessions, scope=SCOPE)
    system.answers(status)

    with pytest.raises(ReleaseStopped, match=f"answered {status}.*MAINT_RELEASE_TOKEN_FILE"):
        outbox.ask(client())

    assert len(system.asked) == AT_A_TIME
    rows = outbox.entries("state", "attempts", "claim_id", "claimed_until")
    assert rows == [("pending", 0, None, None)] * len(sessions)
    assert outbox.counted() == {}
    system.behave = lambda _: False
    assert outbox.ask(client()) == {"released": len(sessions)}


@pytest.mark.parametrize(
    ("status", "retry_after", "wait_s"),
    [
        (429, "120", 120),
        (503, "120", 120),
        (429, "5", 30),
        (503, "99999999", 86_400),
        (503, format_datetime(datetime(2026, 12, 1, 0, 2, tzinfo=UTC), usegmt=True), 120),
    ],
)
def test_who_is_asked_to_wait_waits_and_leaves_the_rest_alone(
    outbox: Outbox,
    system: TranscriptSystem,
    client: Client,
    status: int,
    retry_after: str,
    wait_s: int,
) -> None:
    """As long as it was asked to, but not shorter than its own pause and not longer than a day."""
    sessions = ["a", "b", "c"]
    outbox.queue(*sessions)
    system.hold(*sessions, scope=SCOPE)

    def pause(handler: Handler) -> bool:
        handler.wfile.write(
            f"HTTP/1.1 {status} Wait\r\nDate: Tue, 01 Dec 2026 00:00:00 GMT\r\n"
            f"Retry-After: {retry_after}\r\nContent-Length: 0\r\n\r\n".encode()
        )
        return True

    system.behave = pause

    assert outbox.ask(client(at_a_time=1)) == {"failed": 1}

    assert len(system.asked) == 1
    assert outbox.entries("attempts", "not_before") == [
        (1, NOW + wait_s * SECOND_MS),
        (0, NOW),
        (0, NOW),
    ]
    system.behave = lambda _: False
    assert outbox.ask(client()) == {"released": 2}
    assert outbox.ask(client(), NOW + wait_s * SECOND_MS) == {"released": 1}


def test_a_system_that_is_away_is_left_in_peace_before_every_attempt_is_used_up(
    outbox: Outbox, system: TranscriptSystem, client: Client
) -> None:
    """An outage of hours must not bury everything that was due in it."""
    sessions = [f"talk {number}" for number in range(3 * AWAY_MAX)]
    outbox.queue(*sessions)
    system.answers(502)

    with pytest.raises(ReleaseStopped, match=f"after {AWAY_MAX} failures in a row.*502"):
        outbox.ask(client(at_a_time=1))

    assert len(system.asked) == AWAY_MAX
    assert outbox.counted() == {"failed": AWAY_MAX}
    assert outbox.entries("attempts").count((0,)) == len(sessions) - AWAY_MAX


def test_failures_of_single_transcripts_do_not_stop_the_drain(
    outbox: Outbox, system: TranscriptSystem, client: Client
) -> None:
    """However many: the others behind them are released."""
    bad = [f"bad {number:02}" for number in range(2 * AWAY_MAX)]
    outbox.queue(*bad, "good")
    system.hold("good", scope=SCOPE)
    system.behave = lambda handler: handler.key[1] != "good" and handler.say(500)

    assert outbox.ask(client()) == {"failed": len(bad), "released": 1}
    assert system.held == set()


# The token


def test_the_token_is_read_anew_for_every_few_requests(
    outbox: Outbox, system: TranscriptSystem, client: Client, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first-t0ken\n", encoding="utf-8")
    outbox.queue("a", "b")

    def exchange(handler: Handler) -> bool:
        token.write_text("second-t0ken", encoding="utf-8")
        return handler.say(204)

    system.behave = exchange

    assert outbox.ask(client(at_a_time=1, token=token)) == {"released": 2}

    shown = [request.headers["Authorization"] for request in system.asked]
    assert shown == ["Bearer first-t0ken", "Bearer second-t0ken"]


def test_without_a_token_file_none_is_sent(
    outbox: Outbox, system: TranscriptSystem, client: Client
) -> None:
    outbox.queue("a")

    assert outbox.ask(client()) == {"absent": 1}

    assert "Authorization" not in system.asked[0].headers


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file or directory"),
        (b"", "does not hold one token"),
        (b"s3cret-word\r\nX-Other: 1", "does not hold one token"),
        (b"two s3cret-words", "does not hold one token"),
        ("s3cret-wörd".encode(), "does not hold one token"),
        (b"x" * 20_000, "does not hold one token"),
    ],
)
def test_a_token_file_that_cannot_be_used_stops_the_drain_and_asks_nothing(
    outbox: Outbox,
    system: TranscriptSystem,
    client: Client,
    tmp_path: Path,
    content: bytes | None,
    why: str,
) -> None:
    """The sentence names the file, and nothing of what is in it."""
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)
    outbox.queue("a")

    with pytest.raises(ReleaseStopped, match=why) as stopped:
        outbox.ask(client(token=token))

    assert str(token) in str(stopped.value)
    assert "s3cret" not in str(stopped.value)
    assert system.asked == []
    assert outbox.entries("state", "attempts", "last_error") == [("pending", 0, None)]


# Claims


def test_entries_of_a_drain_that_died_after_the_request_are_asked_for_again(
    outbox: Outbox, system: TranscriptSystem, client: Client
) -> None:
    """The transcript is gone by then: nothing is released, and counted, twice."""

    class Dies(HttpRelease):
        def release(self, keys):  # type: ignore[no-untyped-def]
            super().release(keys)
            raise KeyboardInterrupt

    outbox.queue("talk")
    system.hold("talk", scope=SCOPE)
    with closing(Dies(system.template, None, LIMIT, 1)) as dies, pytest.raises(KeyboardInterrupt):
        outbox.ask(dies)
    assert system.held == set()

    assert outbox.ask(client(), NOW + LEASE_MS - 1) == {}
    assert outbox.ask(client(), NOW + LEASE_MS) == {"absent": 1}

    assert outbox.entries("*") == []
    assert outbox.counted() == {"absent": 1}


def test_a_drain_that_outlives_its_lease_ends_and_counts_nothing(
    outbox: Outbox, system: TranscriptSystem, client: Client
) -> None:
    """Another one asked meanwhile, and its answer counts."""
    outbox.queue("talk")
    system.hold("talk", scope=SCOPE)
    counted: list[dict[str, int]] = []

    def another_first(handler: Handler) -> bool:
        system.behave = lambda _: False
        counted.append(outbox.ask(client(), NOW + LEASE_MS))
        return False

    system.behave = another_first

    assert outbox.ask(client()) == {}

    assert counted == [{"released": 1}]
    assert outbox.counted() == {"released": 1}
    assert len(system.asked) == 2


def test_two_drains_side_by_side_ask_for_everything_once(
    outbox: Outbox, system: TranscriptSystem, client: Client
) -> None:
    sessions = [f"talk {number:02}" for number in range(40)]
    outbox.queue(*sessions)
    system.hold(*sessions, scope=SCOPE)
    both = threading.Barrier(2)
    met: list[dict[str, int]] = []

    def meet(_: Handler) -> bool:
        # The first request of each waits for the other's.
        if both.n_waiting < 2 and not both.broken and len(system.asked) <= 2:
            both.wait(60)
        return False

    system.behave = meet
    drains = [
        threading.Thread(target=lambda: met.append(outbox.ask(client(at_a_time=1))))
        for _ in range(2)
    ]
    for drain in drains:
        drain.start()
    for drain in drains:
        drain.join(60)

    assert sum(each["released"] for each in met) == len(sessions)
    assert len(met) == 2
    assert len(system.asked) == len(sessions)
    assert outbox.entries("*") == []
    assert outbox.counted() == {"released": len(sessions)}


def test_nothing_of_ours_is_open_while_it_is_asked(
    outbox: Outbox, system: TranscriptSystem, client: Client
) -> None:
    """A system that is slow holds no transaction open, and no row locked."""
    outbox.queue("talk")
    seen: list[list[tuple[object, ...]]] = []

    def look(_: Handler) -> bool:
        seen.append(
            outbox.select(
                "select state from pg_stat_activity where datname = current_database()"
                " and pid <> pg_backend_pid() and state <> 'idle'"
                " and application_name = 'sema-maintenance'"
            )
        )
        return False

    system.behave = look

    outbox.ask(client())

    assert seen == [[]]
