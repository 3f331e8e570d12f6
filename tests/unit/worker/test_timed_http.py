"""A connection over TLS that breaks at any stage: nothing is sent in clear, and nothing hangs."""

import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from tests.conftest import unavailable
from worker.timed_http import Line

TOKEN = "Bearer the-token"
LIMIT_S = 2.0
# A call that is over after this has kept to its limit, even on a machine that is busy.
OVER_WITHIN_S = 8.0
KEPT_OPEN = b"HTTP/1.1 204 No Content\r\n\r\n"

Stage = Callable[["Server", socket.socket], None]


class Server:
    """Does one thing after another with the connections that come; keeps what came undecrypted."""

    def __init__(self, certificate: Path) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.stages: list[Stage] = []
        self.first_bytes: list[bytes] = []
        self.over = threading.Event()
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def _serve(self) -> None:
        while not self.over.is_set():
            with suppress(OSError):
                accepted, _ = self._listener.accept()
                stage = self.stages.pop(0) if self.stages else answer
                self._threads.append(threading.Thread(target=self._do, args=(stage, accepted)))
                self._threads[-1].start()

    def _do(self, stage: Stage, accepted: socket.socket) -> None:
        accepted.settimeout(OVER_WITHIN_S)
        with accepted, suppress(OSError):
            # WHY peeked at: TLS begins with a record of type 22, and a request in clear with its
            # method.
            if stage not in BEFORE_TLS:
                self.first_bytes.append(accepted.recv(1, socket.MSG_PEEK))
            stage(self, accepted)

    def tls(self, accepted: socket.socket) -> ssl.SSLSocket:
        return self._context.wrap_socket(accepted, server_side=True)

    def close(self) -> None:
        self.over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()


def read_request(secure: socket.socket) -> None:
    received = b""
    while b"\r\n\r\n" not in received:
        more = secure.recv(65536)
        if not more:
            raise ConnectionError
        received += more
    assert TOKEN.encode() in received


def says(*answers: bytes, then: Callable[["Server"], object] = lambda _: None) -> Stage:
    """Answers one request after another with these bytes, and closes."""

    def stage(server: Server, accepted: socket.socket) -> None:
        with server.tls(accepted) as secure:
            for said in answers:
                read_request(secure)
                secure.sendall(said)
            then(server)

    return stage


def answer(server: Server, accepted: socket.socket) -> None:
    says(KEPT_OPEN)(server, accepted)


def close_at_once(_: Server, accepted: socket.socket) -> None:
    accepted.close()


def say_nothing(server: Server, _: socket.socket) -> None:
    server.over.wait(OVER_WITHIN_S)


def no_tls(_: Server, accepted: socket.socket) -> None:
    accepted.recv(65536)
    accepted.sendall(KEPT_OPEN)


def half_a_handshake(_: Server, accepted: socket.socket) -> None:
    accepted.recv(65536)
    accepted.sendall(b"\x16\x03\x03\x00\x7a")


def trickling_handshake(server: Server, accepted: socket.socket) -> None:
    accepted.recv(65536)
    accepted.sendall(b"\x16\x03\x03\x40\x00")
    while not server.over.wait(0.1):
        accepted.sendall(b"\x02")


def close_after_the_handshake(server: Server, accepted: socket.socket) -> None:
    server.tls(accepted).close()


def end_tls_after_the_handshake(server: Server, accepted: socket.socket) -> None:
    with server.tls(accepted) as secure, suppress(OSError):
        secure.unwrap()


def reset_after_the_request(server: Server, accepted: socket.socket) -> None:
    secure = server.tls(accepted)
    read_request(secure)
    secure.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    secure.close()


def trickling_answer(server: Server, accepted: socket.socket) -> None:
    with server.tls(accepted) as secure:
        read_request(secure)
        secure.sendall(b"HTTP/1.1 204 No Content\r\n")
        while not server.over.wait(0.1):
            secure.sendall(b"X")


# Of these the first bytes are not looked at: they wait for none.
BEFORE_TLS = (close_at_once, say_nothing)

BREAKS: dict[str, Stage] = {
    "closed at once": close_at_once,
    "silent at the handshake": say_nothing,
    "no TLS": no_tls,
    "closed in the handshake": half_a_handshake,
    "handshake without end": trickling_handshake,
    "closed after the handshake": close_after_the_handshake,
    "TLS ended after the handshake": end_tls_after_the_handshake,
    "closed after the request": says(b""),
    "reset after the request": reset_after_the_request,
    "closed in the status": says(b"HTTP/1.1 20"),
    "not HTTP": says(b"SSH-2.0-OpenSSH\r\n"),
    "line too long": says(b"HTTP/1.1 200 " + b"x" * 70_000),
    "header too long": says(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000),
    "too many headers": says(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n"),
    "answer without end": trickling_answer,
    "silent after the request": says(b"", then=lambda server: server.over.wait(OVER_WITHIN_S)),
}

# What is known once the status is: the body is of no interest, and neither is its connection then.
BODIES: dict[str, Stage] = {
    "closed in the headers": says(b"HTTP/1.1 200 OK\r\nX"),
    "length of nonsense": says(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nxx"),
    "longer than it says": says(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\nxx"),
    "chunks of nonsense": says(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n" + KEPT_OPEN
    ),
    "chunk cut short": says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\nxx"),
    "chunk line too long": says(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 70_000
    ),
    "body without end": says(
        b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\nx",
        then=lambda server: server.over.wait(OVER_WITHIN_S),
    ),
    "too much of a body": says(
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n" + b"x" * 100_000
    ),
}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate and its key in one file, good for localhost."""
    program = shutil.which("openssl")
    if program is None:
        unavailable("no openssl here to make a certificate with")
    file = tmp_path_factory.mktemp("tls") / "certificate.pem"
    command = [program, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(
        [*command, "-keyout", str(file), "-out", str(file) + ".crt"],
        check=True,
        capture_output=True,
    )
    file.write_bytes(file.read_bytes() + Path(str(file) + ".crt").read_bytes())
    return file


@pytest.fixture
def server(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    server = Server(certificate)
    yield server
    server.close()


@pytest.fixture
def line(server: Server) -> Iterator[Line]:
    line = Line(f"https://localhost:{server.port}", ssl.create_default_context())
    yield line
    line.close()


def ask(line: Line) -> int | None:
    """The status; None where there was no answer. Over within its limit either way."""
    began = time.monotonic()
    try:
        return line.request("DELETE", "/x", {"Authorization": TOKEN}, LIMIT_S).status
    except (OSError, HTTPException):
        return None
    finally:
        assert time.monotonic() - began < OVER_WITHIN_S


def assert_nothing_in_clear(server: Server) -> None:
    assert set(server.first_bytes) <= {b"\x16", b""}


@pytest.mark.parametrize("how", BREAKS)
def test_a_connection_that_breaks_is_forgotten(server: Server, line: Line, how: str) -> None:
    """There is no answer then; the next request has a connection of its own, over TLS."""
    server.stages = [BREAKS[how]]

    assert ask(line) is None
    assert ask(line) == 204
    assert_nothing_in_clear(server)


@pytest.mark.parametrize("how", BREAKS)
def test_a_connection_that_was_kept_and_breaks_twice(server: Server, line: Line, how: str) -> None:
    """It is asked once more on a new one; where that breaks too, the next is over TLS again."""
    server.stages = [says(KEPT_OPEN, b""), BREAKS[how]]

    assert ask(line) == 204
    assert ask(line) is None
    assert ask(line) == 204
    assert_nothing_in_clear(server)


@pytest.mark.parametrize("how", BODIES)
def test_a_body_that_breaks(server: Server, line: Line, how: str) -> None:
    """The status counts; what follows is no answer to the next request."""
    server.stages = [BODIES[how]]

    assert ask(line) == 200
    assert ask(line) == 204
    assert_nothing_in_clear(server)


def test_a_connection_that_was_kept_and_closed_is_replaced(server: Server, line: Line) -> None:
    server.stages = [answer, answer, says(KEPT_OPEN, b""), answer]

    assert [ask(line) for _ in range(4)] == [204] * 4
    assert_nothing_in_clear(server)


def test_an_answer_that_nobody_asked_for_is_no_answer(server: Server, line: Line) -> None:
    """It would say of the next transcript that it is gone."""
    sent = threading.Event()

    def answer_twice(server: Server, accepted: socket.socket) -> None:
        with server.tls(accepted) as secure:
            read_request(secure)
            secure.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            first.wait(OVER_WITHIN_S)
            secure.sendall(KEPT_OPEN)
            sent.set()

    first = threading.Event()
    server.stages = [answer_twice, says(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n")]

    assert ask(line) == 404
    first.set()
    assert sent.wait(OVER_WITHIN_S)
    assert ask(line) == 500
    assert_nothing_in_clear(server)
