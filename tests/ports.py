"""Ports for servers that tests start."""

import itertools
import os
import socket

# WHY below 32768: from there on the kernel gives ports to outgoing connections, and one of those
# may take the port between the look at it and its use.
_LOWEST, _HOW_MANY = 10_000, 22_000
# WHY from the process's id on: test processes side by side walk different stretches.
_walk = itertools.count(os.getpid() * 1_009)


def free_port() -> int:
    """A port of this machine that nobody listens on, and that this process was not given before."""
    for step in itertools.islice(_walk, _HOW_MANY):
        port = _LOWEST + step % _HOW_MANY
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise OSError("every port that tests may take is in use")
