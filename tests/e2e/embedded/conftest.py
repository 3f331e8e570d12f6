"""Folders with and without a cluster, and other processes that use them."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from tests.e2e.embedded.acting import FAST, Holder, remember
from worker.embedded import EmbeddedUnavailable, embedded_postgres

FOLDER_PREFIX = "sema-e2e-"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where a database may be made, within reach of the server's account if root runs this."""
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX, dir="/tmp") as name:
        Path(name).chmod(0o711)
        path = Path(name) / "database"
        yield path
        stop_what_lives(path)


@pytest.fixture(scope="package")
def spare() -> Iterator[Path]:
    """Where the one cluster is kept that is lent to tests which are not about making one."""
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX, dir="/tmp") as name:
        Path(name).chmod(0o711)
        yield Path(name) / "spare"


@pytest.fixture
def cluster(folder: Path, spare: Path) -> Iterator[Path]:
    """`folder` with a stopped cluster in it that remembers the word `kept`."""
    if not spare.exists():
        with embedded_postgres(spare, create=True, options=FAST) as url:
            remember(url, "kept")
    spare.rename(folder)
    yield folder
    stop_what_lives(folder)
    if folder.exists():  # a failed test may have moved it
        folder.rename(spare)


def stop_what_lives(folder: Path) -> None:
    """End the server that a failed test left behind."""
    if (folder / "data" / "postmaster.pid").exists():
        with suppress(EmbeddedUnavailable), embedded_postgres(folder, create=False):
            pass


@pytest.fixture
def hold(folder: Path) -> Iterator[Callable[..., Holder]]:
    """Start holders of the folder; those that still live are killed before the folder goes."""
    with ExitStack() as holders:
        yield lambda *body: holders.enter_context(closing(Holder(folder, *body)))


@pytest.fixture
def root_dir() -> Iterator[Path]:
    """In place of the folder under /var/lib, so that a test leaves nothing on the machine."""
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX, dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def closed(folder: Path) -> Path:
    """A folder of root's that nobody else can pass, as a checkout under /root is."""
    folder.mkdir(mode=0o700)
    return folder
