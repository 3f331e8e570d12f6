"""Locks that end with whoever holds them, so that a dead process never has to be recognised.

A lock belongs to the open file, not to the process: a child that inherits the descriptor holds
the lock as well, and it is free when the last copy is closed, by a crash too.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

if sys.platform != "win32":  # where the adapter says so in a sentence, once it is asked
    import fcntl

_POLL_S = 0.05


class FileLock:
    """One open lock file, at first without a lock. Raises OSError when it cannot be opened."""

    def __init__(self, path: Path) -> None:
        # WHY O_NOFOLLOW: root may open this in a folder that somebody else can write to.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)
        if os.geteuid() == 0:
            # WHY: what root makes in a user's folder must stay usable for that user.
            owner = path.parent.stat()
            os.fchown(self._fd, owner.st_uid, owner.st_gid)

    def fileno(self) -> int:
        """The descriptor, for a child that is to inherit the lock."""
        return self._fd

    def share(self) -> None:
        """Take the lock together with others; waits while one holds it alone."""
        fcntl.flock(self._fd, fcntl.LOCK_SH)

    def acquire(self, wait_s: float = 0.0) -> bool:
        """Take the lock alone; False when others still hold it after `wait_s` seconds.

        A shared lock held before is turned into this one; on False it may be lost.
        """
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(_POLL_S)
            else:
                return True

    @contextmanager
    def alone(self, wait_s: float) -> Iterator[None]:
        """Hold the lock alone for a block. Raises TimeoutError after `wait_s` seconds."""
        if not self.acquire(wait_s):
            raise TimeoutError(f"another process holds it for more than {wait_s:.0f} s")
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go, unless a child inherited the descriptor."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
