"""A TCP connection's way between two parts of a test, to be cut or to swallow everything."""

import selectors
import socket
import threading
from contextlib import suppress
from typing import Self


class Proxy:
    """Passes bytes on, until it is told to cut the connections or to swallow what comes.

    Each end sees its packets acknowledged all the same: the kernel here does that.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._lock = threading.Lock()
        self._dead: set[socket.socket] = set()
        self._swallows = False
        self._refuses = False
        self._closed = False
        self._thread = threading.Thread(target=self._pass_on, daemon=True)
        self._thread.start()

    def cut(self) -> int:
        """Close every connection there is; gives how many. New ones are let through."""
        with self._lock:
            ends = list(self._pairs)
            for end in ends:
                # WHY not close: it is the thread's to close, which may be reading from it.
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            return len(ends) // 2

    def swallow(self) -> None:
        """From now on nothing that was sent arrives, in either direction; nothing is closed."""
        self._swallows = True

    def refuse(self) -> None:
        """Cut what there is, and every new connection at once."""
        self._refuses = True
        self.cut()

    def let_through(self) -> None:
        """New connections work again. What was swallowed stays so: those are cut."""
        self._refuses = False
        if self._swallows:
            self._dead |= set(self._pairs)
            self._swallows = False
            self.cut()

    def close(self) -> None:
        self._closed = True
        self._thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pass_on(self) -> None:
        with selectors.DefaultSelector() as selector, self._listening:
            selector.register(self._listening, selectors.EVENT_READ)
            while not self._closed:
                for key, _ in selector.select(0.05):
                    if key.fileobj is self._listening:
                        self._accept(selector)
                    else:
                        self._move(selector, key.fileobj)
            for end in list(self._pairs):
                end.close()

    def _accept(self, selector: selectors.BaseSelector) -> None:
        near, _ = self._listening.accept()
        if self._refuses:
            near.close()
            return
        try:
            far = socket.create_connection(self._target, 5)
        except OSError:
            near.close()
            return
        with self._lock:
            self._pairs |= {near: far, far: near}
        for end in (near, far):
            selector.register(end, selectors.EVENT_READ)

    def _move(self, selector: selectors.BaseSelector, end: object) -> None:
        assert isinstance(end, socket.socket)
        if end not in self._pairs:
            return
        other = self._pairs[end]
        try:
            data = b"" if end in self._dead else end.recv(65536)
            if data and self._swallows:
                return
            other.sendall(data)
        except OSError:
            data = b""
        if not data and self._swallows:
            # The end of a connection is swallowed as well: the other end hears nothing of it.
            selector.unregister(end)
        elif not data:
            with self._lock:
                for each in (end, other):
                    self._pairs.pop(each, None)
                    self._dead.discard(each)
                    if each in selector.get_map():
                        selector.unregister(each)
                    each.close()
