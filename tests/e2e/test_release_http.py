"""Transcripts that another system holds, released by real processes over real sockets."""

import json
import shutil
import signal
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from store.database import Database
from tests.e2e.placed import Ledger
from tests.e2e.processes import Child, environment
from tests.transcript_system import Handler, TranscriptSystem, transcript_system
from tests.waiting import wait_until

TOKEN = "t0ken-s3cret-word"
RELEASE = ("-m", "worker", "release-sessions", "--all-scopes", "--yes", "--json")


@pytest.fixture
def ledger(plain_ledger: tuple[str, Database]) -> Iterator[Ledger]:
    with closing(Ledger(plain_ledger[0])) as ledger:
        yield ledger


@pytest.fixture
def system() -> Iterator[TranscriptSystem]:
    with transcript_system() as system:
        yield system


class Drains:
    """Starts drains by hand, each a process of its own that says all it can."""

    def __init__(self, ledger: Ledger, system: TranscriptSystem, folder: Path) -> None:
        self._folder = folder
        self._started = 0
        token = folder / "token"
        token.write_text(f"{TOKEN}\n", encoding="utf-8")
        self.settings: dict[str, object] = {
            "DATABASE_URL": ledger.url,
            "RELEASE_BACKEND": "http",
            "RELEASE_URL": system.template,
            "RELEASE_TOKEN_FILE": token,
            "LOG_LEVEL": "debug",
            "LOG_FORMAT": "json",
        }

    def start(self, **variables: str) -> Child:
        self._started += 1
        name = f"drain-{self._started}"
        return Child(name, self._folder, environment(**self.settings) | variables, *RELEASE)

    def run(self, **variables: str) -> Child:
        """One to its end."""
        with self.start(**variables) as drain:
            drain.ends()
        assert TOKEN not in drain.log + drain.out
        assert "Traceback" not in drain.log
        return drain


@pytest.fixture
def drains(ledger: Ledger, system: TranscriptSystem, tmp_path: Path) -> Drains:
    return Drains(ledger, system, tmp_path)


def queue(ledger: Ledger, *sessions: str) -> None:
    for session in sessions:
        ledger.do(
            "insert into maintenance.session_releases"
            " (scope, session_id, handle, settled_at, run_id, queued_at, not_before)"
            f" values ('s', '{session}', 'a', 1, gen_random_uuid(), 0, 0)"
        )


def entries(ledger: Ledger, columns: str) -> list[tuple[object, ...]]:
    rows = ledger.query(f"select {columns} from maintenance.session_releases order by id")
    return [tuple(row.values()) for row in rows]


def report(drain: Child) -> object:
    return json.loads(drain.out)["report"]


def test_a_run_by_hand_releases_what_is_due_with_its_token(
    ledger: Ledger, system: TranscriptSystem, drains: Drains
) -> None:
    """No proxy of the environment is asked, and the token is written down nowhere."""
    queue(ledger, "a", "b/c", "gone")
    system.hold("a", "b/c", scope="s")
    nobody = "http://127.0.0.1:1"

    drain = drains.run(http_proxy=nobody, HTTP_PROXY=nobody, ALL_PROXY=nobody)

    assert drain.process.returncode == 0, drain.log
    assert report(drain) == {"released": 2, "absent": 1}
    assert system.held == set()
    assert {request.headers["Authorization"] for request in system.asked} == {f"Bearer {TOKEN}"}
    assert drain.lines(event="run", outcome="succeeded")
    assert not any(TOKEN in row for rows in ledger.tables().values() for row in rows)


def test_failures_are_told_and_the_exit_code_says_so(
    ledger: Ledger, system: TranscriptSystem, drains: Drains
) -> None:
    queue(ledger, "bad", "good")
    system.hold("good", scope="s")
    system.behave = lambda handler: handler.key[1] == "bad" and handler.say(500)

    drain = drains.run()

    assert drain.process.returncode == 1
    assert report(drain) == {"released": 1, "failed": 1}
    assert "1 release failed and is tried again; `releases list` says why" in drain.log
    assert entries(ledger, "session_id, attempts") == [("bad", 1)]


def test_a_refused_token_fails_the_run_in_one_clear_sentence(
    ledger: Ledger, system: TranscriptSystem, drains: Drains
) -> None:
    queue(ledger, "a", "b")
    system.answers(401)

    drain = drains.run()

    assert drain.process.returncode == 1
    said = "the drain was stopped: the system that holds the transcripts answered 401 Unauthorized"
    assert f"sema-maintenance: release_sessions failed: {said}" in drain.log
    assert [line["error"].startswith(said) for line in drain.lines(event="run")] == [True]
    assert entries(ledger, "state, attempts, claim_id") == [("pending", 0, None)] * 2


def test_killed_between_the_request_and_its_completion_it_strands_nothing(
    ledger: Ledger, system: TranscriptSystem, drains: Drains
) -> None:
    """The transcript is gone, the entry is not: the next one asks again and hears of it."""
    queue(ledger, "talk")
    system.hold("talk", scope="s")
    arrived = threading.Event()

    def delete_and_say_nothing(handler: Handler) -> bool:
        system.held.discard(handler.key)
        arrived.set()
        return handler.hang()

    system.behave = delete_and_say_nothing
    with drains.start() as drain:
        wait_until(arrived.is_set, "the request")
        assert drain.signal_and_wait(signal.SIGKILL) == -signal.SIGKILL
    assert entries(ledger, "state, attempts, claim_id is not null") == [("pending", 1, True)]
    assert ledger.journal() == {}
    system.behave = lambda _: False

    assert report(drains.run()) == {"released": 0}
    # Its lease is over.
    ledger.do("update maintenance.session_releases set claimed_until = 0")
    assert report(drains.run()) == {"released": 0, "absent": 1}

    assert entries(ledger, "id") == []
    assert ledger.journal()["release_sessions/absent"] == 1
    assert "release_sessions/released" not in ledger.journal()


def test_sigterm_lets_the_requests_in_hand_end_and_leaves_the_rest_due(
    ledger: Ledger, system: TranscriptSystem, drains: Drains
) -> None:
    """No claim is left behind for whose end somebody would have to wait."""
    sessions = [f"talk {number}" for number in range(12)]
    queue(ledger, *sessions)
    system.hold(*sessions, scope="s")
    arrived, told = threading.Event(), threading.Event()

    def wait_until_told(_: Handler) -> bool:
        arrived.set()
        return not told.wait(60)

    system.behave = wait_until_told
    with drains.start() as drain:
        wait_until(arrived.is_set, "a request")
        drain.process.send_signal(signal.SIGTERM)
        drain.wait_for("stopping after the batch in hand")
        told.set()
        assert drain.ends() == 1

    done = len(sessions) - len(system.held)
    assert 0 < done <= 4
    assert report(drain) == {"released": done}
    assert entries(ledger, "state, attempts, claim_id") == [("pending", 0, None)] * (12 - done)


def test_two_processes_side_by_side_ask_for_everything_once(
    ledger: Ledger, system: TranscriptSystem, drains: Drains
) -> None:
    sessions = [f"talk {number}" for number in range(60)]
    queue(ledger, *sessions)
    system.hold(*sessions, scope="s")
    both = threading.Barrier(8)

    def meet(_: Handler) -> bool:
        # The first requests of each wait for the other's.
        if len(system.asked) <= 8:
            both.wait(60)
        return False

    system.behave = meet
    with drains.start() as first, drains.start() as second:
        assert (first.ends(), second.ends()) == (0, 0), first.log + second.log

    assert len(system.asked) == len(sessions)
    assert ledger.journal()["release_sessions/released"] == len(sessions)
    assert entries(ledger, "id") == []


def test_where_nobody_is_to_delete_the_outbox_is_emptied(
    ledger: Ledger, drains: Drains, tmp_path: Path
) -> None:
    queue(ledger, "a", "b")
    ledger.session("a")
    for name in ("RELEASE_URL", "RELEASE_TOKEN_FILE"):
        del drains.settings[name]
    drains.settings["RELEASE_BACKEND"] = "none"

    assert report(drains.run()) == {"released": 0, "kept": 2}

    assert ledger.transcripts("s") == ["a"]
    assert entries(ledger, "id") == []


def test_a_certificate_has_to_be_trusted(ledger: Ledger, tmp_path: Path) -> None:
    """By what the machine trusts, or by what SSL_CERT_FILE names; the host's name must be in it."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl here that would make a certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    named = ("-subj", "/CN=transcripts", "-addext", "subjectAltName=IP:127.0.0.1")
    made = ("-keyout", str(key), "-out", str(certificate))
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *named, *made],
        check=True,
        capture_output=True,
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with transcript_system(tls) as system:
        drains = Drains(ledger, system, tmp_path)
        queue(ledger, "talk")
        system.hold("talk", scope="s")

        drain = drains.run()

        assert report(drain) == {"released": 0, "failed": 1}
        [(error,)] = entries(ledger, "last_error")
        assert "has a certificate that is not trusted: self-signed certificate" in str(error)
        assert system.asked == []

        ledger.do("update maintenance.session_releases set not_before = 0")
        assert report(drains.run(SSL_CERT_FILE=str(certificate))) == {"released": 1}
        assert system.held == set()
