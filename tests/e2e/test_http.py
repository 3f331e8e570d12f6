"""The little web server: what it serves, what it refuses, and who cannot hold it up."""

import errno
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest

from config.addresses import Address
from config.policy import Policy
from tests import ledgers
from tests.conftest import Servers
from tests.e2e.scraping import get, process_of, serving
from tests.waiting import wait_until
from worker import http
from worker.context import Process
from worker.http import Served


@pytest.fixture
def url(servers: Servers) -> str:
    return servers.ledger("18", "plain")[0]


@pytest.fixture
def served(url: str) -> Iterator[Served]:
    with serving(process_of(url, Policy.empty())) as served:
        yield served


def raw(served: Served, request: bytes) -> bytes:
    """What comes back when exactly these bytes are sent."""
    with socket.create_connection(served.address, timeout=30) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_pages(served: Served) -> None:
    metrics = get(served, "/metrics")
    assert metrics.status == 200
    assert metrics.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "maintenance_store_up 1.0" in metrics.body
    assert get(served, "/metrics?x=1").status == 200
    for path, body in (("/healthz", "ok\n"), ("/readyz", "ready\n")):
        page = get(served, path)
        assert (page.status, page.body) == (200, body)
        assert page.headers["Content-Type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize(
    "path", ["/index.html", "/metrics/", "/metrics/x", "/healthz/", "/favicon.ico", "/%6detrics"]
)
def test_nothing_else_is_served(served: Served, path: str) -> None:
    page = get(served, path)
    assert page.status == 404
    assert page.body == "not found; there is /, /metrics, /healthz, /readyz\n"


@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz", "/readyz", "/nowhere"])
def test_head_is_get_without_the_body(served: Served, path: str) -> None:
    full, head = get(served, path), get(served, path, "HEAD")
    assert head.status == full.status
    assert head.body == ""
    assert head.headers["Content-Type"] == full.headers["Content-Type"]

    def as_long() -> bool:
        """WHY asked again: a figure that is read for the first time makes the page longer."""
        length = int(get(served, path, "HEAD").headers["Content-Length"])
        return abs(length - len(get(served, path).body.encode())) <= 64

    wait_until(as_long, "a page of the length that was announced")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "TRACE", "BREW"])
def test_it_only_answers_questions(served: Served, method: str) -> None:
    page = get(served, "/metrics", method)
    assert (page.status, page.body) == (405, "method not allowed\n")
    assert page.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET /metrics HTTP/1.1\r\n\r\n",
        b"GET /nowhere HTTP/1.0\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\n\r\n",
        b"GET /<script> HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + b"".join(b"X%d: y\r\n" % n for n in range(200)) + b"\r\n",
    ],
    ids=["metrics", "nowhere", "post", "version", "tls", "long", "headers"],
)
def test_no_answer_tells_what_gave_it(served: Served, request_line: bytes) -> None:
    """No server header, no page of the library's, no word of the request, no traceback."""
    try:
        answer = raw(served, request_line)
    except ConnectionResetError:
        # It closed before it had read all of what was too long.
        answer = b""
    head, _, body = answer.partition(b"\r\n\r\n")
    for word in (b"Server:", b"Python", b"http.server", b"<", b"Traceback"):
        assert word not in head
    if b"version=0.0.4" not in head:
        assert b"<" not in answer
        assert body.count(b"\n") <= 1
    assert get(served, "/healthz").status == 200


def test_idle_connections_hold_up_nobody(served: Served) -> None:
    """Fifty say nothing, one stops in the middle of its request; a scrape does not notice."""
    with ExitStack() as stack:
        idle = [
            stack.enter_context(socket.create_connection(served.address, timeout=30))
            for _ in range(51)
        ]
        idle[0].sendall(b"GET /metrics HT")

        for _ in range(3):
            page = get(served, "/metrics")
            assert page.status == 200
            assert page.took_s < 3


def test_an_idle_connection_is_closed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http._Handler, "timeout", 0.2)
    begun = time.monotonic()
    with socket.create_connection(served.address, timeout=30) as connection:
        assert connection.recv(1) == b""
    assert 0.15 < time.monotonic() - begun < 10


def test_a_visitor_who_leaves_is_no_trouble(
    served: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(5):
        with socket.create_connection(served.address, timeout=30) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert get(served, "/metrics").status == 200
    assert capfd.readouterr() == ("", "")


def test_an_address_in_use_is_an_os_error(served: Served, url: str) -> None:
    process = process_of(url, Policy.empty(), MAINT_HTTP_ADDRESS=str(served.address))
    with pytest.raises(OSError, match="in use") as caught:
        http.serve(process)
    assert caught.value.errno == errno.EADDRINUSE
    assert get(served, "/healthz").status == 200


@pytest.mark.parametrize("host", ["192.0.2.1", "x" * 64 + ".invalid"])
def test_an_address_that_is_not_ours_is_an_os_error(url: str, host: str) -> None:
    process = process_of(url, Policy.empty(), MAINT_HTTP_ADDRESS=f"{host}:0")
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the system chooses the words
        http.serve(process)
    assert caught.value.strerror


def test_port_0_is_any_that_is_free(served: Served) -> None:
    assert served.address.host == "127.0.0.1"
    assert served.address.port > 0


def test_closing_twice_is_closing_once(url: str) -> None:
    process = process_of(url, Policy.empty())
    with serving(process) as served:
        address: Address = served.address
        assert get(served, "/metrics").status == 200
        served.close()
        served.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=5)
    process.close()


# Ready or not


def told_of(process: Process) -> str:
    """What /readyz gives as the reason, asked for the first time."""
    with serving(process) as served:
        page = get(served, "/readyz")
    assert page.status == 503, page.body
    assert page.body.count("\n") == 1
    return page.body.strip().removeprefix("not ready: ")


READ_ONLY = """do $$ begin execute format(
    'alter database %I set default_transaction_read_only = on', current_database()
); end $$"""


def do(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


@pytest.fixture
def fresh(servers: Servers) -> Iterator[str]:
    """A ledger that a test may spoil."""
    name = f"sema_test_unready_{os.getpid()}"
    with ledgers.fresh_database(servers.url("18"), name) as url:
        ledgers.create(url, "plain").close()
        yield url


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ("drop table public.checkpoints", "no table checkpoints in schema public"),
        ("alter table public.agent_sessions drop column updated_at", "no column updated_at"),
        ("drop table maintenance.journal", "tables are missing (no maintenance.journal)"),
        ("delete from maintenance.schema_migrations where version > 1", "older than this release"),
        (READ_ONLY, "read-only"),
    ],
)
def test_ledger_that_jobs_cannot_work_on_is_not_ready(fresh: str, spoil: str, words: str) -> None:
    """It says what is missing, also where the database itself answers."""
    do(fresh, spoil)

    assert words in told_of(process_of(fresh, Policy.empty()))


def test_ready_by_itself_once_nothing_is_missing(fresh: str) -> None:
    do(fresh, "alter table maintenance.journal rename to journal_")
    with serving(process_of(fresh, Policy.empty())) as served:
        assert get(served, "/readyz").status == 503
        do(fresh, "alter table maintenance.journal_ rename to journal")
        wait_until(lambda: get(served, "/readyz").status == 200, "ready")


def test_loops_decide_what_the_probes_say(url: str) -> None:
    process = process_of(url, Policy.empty())
    with serving(process) as served:
        process.loops.beat.begin()
        assert get(served, "/healthz").body == "ok\n"
        assert get(served, "/readyz").body.startswith("not ready: the beat has no broker since 20")

        process.loops.beat.reached()
        assert get(served, "/readyz").body == "ready\n"

        process.loops.beat.end()
        told = get(served, "/healthz")
        assert (told.status, told.body.count("\n")) == (503, 1)
        assert told.body.startswith("the beat ended at 20")
        assert get(served, "/readyz").body == f"not ready: {told.body}"


def test_process_that_is_to_end_is_alive_whatever_its_loops_do(url: str) -> None:
    process = process_of(url, Policy.empty())
    with serving(process) as served:
        process.loops.consumer.begin()
        process.loops.consumer.end()
        process.stopping.set()

        assert get(served, "/healthz").body == "ok\n"
        page = get(served, "/readyz")
        assert (page.status, page.body) == (503, "not ready: shutting down\n")
