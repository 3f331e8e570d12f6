"""A system that holds transcripts, on a real socket: it deletes them, or misbehaves as told."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import unquote

# How long a connection that was left open may say nothing.
_IDLE_S = 30


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked: the path as it came, and who by."""

    method: str
    path: str
    headers: dict[str, str]
    connection: int


@dataclass
class TranscriptSystem:
    """Its transcripts by scope and session, what it was asked, and how it answers."""

    port: int = 0
    held: set[tuple[str, str]] = field(default_factory=set)
    asked: list[Request] = field(default_factory=list)
    # Does something else than to delete; gives True where that was all.
    behave: Callable[["Handler"], bool] = lambda _: False
    over: threading.Event = field(default_factory=threading.Event)
    scheme: str = "http"

    @property
    def template(self) -> str:
        """Where it wants to be asked."""
        return f"{self.scheme}://127.0.0.1:{self.port}/scopes/{{scope}}/sessions/{{session_id}}"

    def hold(self, *sessions: str, scope: str) -> None:
        """Let it have these transcripts."""
        self.held |= {(scope, session) for session in sessions}

    def answers(self, status: int, **headers: str) -> None:
        """From now on it does nothing, and says so."""
        self.behave = lambda handler: handler.say(status, **headers)

    def paths(self) -> list[str]:
        """What was asked for, sorted: several requests come at a time."""
        return sorted(request.path for request in self.asked)


class Handler(BaseHTTPRequestHandler):
    """Answers one connection; the names of its methods are the library's."""

    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S

    @property
    def system(self) -> TranscriptSystem:
        return cast(_Server, self.server).system

    @property
    def key(self) -> tuple[str, str]:
        """The scope and the session that the path names."""
        _, _, scope, _, session = self.path.split("/")
        return unquote(scope), unquote(session)

    def do_DELETE(self) -> None:
        number = id(self.connection)
        self.system.asked.append(Request("DELETE", self.path, dict(self.headers), number))
        if self.system.behave(self):
            return
        was_held = self.key in self.system.held
        self.system.held.discard(self.key)
        self.say(204 if was_held else 404)

    def do_GET(self) -> None:
        self.system.asked.append(Request("GET", self.path, dict(self.headers), 0))
        self.say(200)

    def say(self, status: int, **headers: str) -> bool:
        """Answer without doing anything."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if status != 204:
            self.send_header("Content-Length", "0")
        self.end_headers()
        return True

    def write(self, raw: bytes) -> None:
        """Answer with these bytes."""
        with suppress(OSError):
            self.wfile.write(raw)
            self.wfile.flush()

    def hang(self) -> bool:
        """Say nothing (more) until the test is over."""
        self.system.over.wait(_IDLE_S)
        self.close_connection = True
        return True

    def hang_up(self) -> bool:
        """Close the connection without an answer."""
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        return True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - named by the library
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    system: TranscriptSystem
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """WHY silent: that the other side goes away is what some tests are about."""


@contextmanager
def transcript_system(tls: ssl.SSLContext | None = None) -> Iterator[TranscriptSystem]:
    """One that is there while the block runs."""
    system = TranscriptSystem(scheme="http" if tls is None else "https")
    server = _Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.system = system
    system.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield system
    finally:
        system.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
