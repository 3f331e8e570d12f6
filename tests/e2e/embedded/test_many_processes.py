"""Several processes on one embedded Postgres, and what remains when one of them is killed."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.embedded.acting import (
    FAST,
    LIMIT_S,
    Holder,
    ask,
    assert_stopped,
    remember,
    remembers,
    server_pid,
    socket_folder,
    wait_until,
)
from worker.embedded import EmbeddedUnavailable, embedded_postgres


def test_processes_that_come_at_once_share_one_server_and_the_last_stops_it(
    folder: Path, hold: Callable[..., Holder]
) -> None:
    """Three begin on an empty folder together; whoever leaves first does not take it away."""
    holders = [hold() for _ in range(3)]
    urls = {holder.said() for holder in holders}
    assert len(urls) == 1
    (url,) = urls
    first = server_pid(folder)
    remember(url, "shared")

    for holder in holders[:2]:
        assert holder.leave() == 0
        assert remembers(url, "shared")
        assert server_pid(folder) == first

    assert holders[2].leave() == 0
    assert_stopped(folder, url)


def test_the_server_of_a_killed_process_is_taken_over_and_stopped(
    cluster: Path, hold: Callable[..., Holder]
) -> None:
    """SIGKILL leaves the server alone in the world; the next user is handed that very server."""
    killed = hold()
    remember(killed.said(), "orphaned")
    orphan = server_pid(cluster)
    killed.kill()

    with embedded_postgres(cluster, create=False, options=FAST) as url:
        assert server_pid(cluster) == orphan
        assert remembers(url, "orphaned")
    assert_stopped(cluster, url)


def test_a_killed_process_does_not_count_as_a_user(
    cluster: Path, hold: Callable[..., Holder]
) -> None:
    staying, killed = hold(), hold()
    url = staying.said()
    assert killed.said() == url
    killed.kill()

    assert ask(url, "SELECT 1") == 1
    assert staying.leave() == 0
    assert_stopped(cluster, url)


def test_a_server_killed_under_its_users_is_started_anew_by_the_next(cluster: Path) -> None:
    with embedded_postgres(cluster, create=False, options=FAST) as url:
        remember(url, "recovered")
        dead = server_pid(cluster)
        os.kill(dead, signal.SIGKILL)
        with embedded_postgres(cluster, create=False, options=FAST) as again:
            assert server_pid(cluster) != dead
            assert remembers(again, "recovered")
        assert remembers(url, "recovered"), "the first user is still inside"
    assert_stopped(cluster, url)


def test_a_pid_file_that_names_a_stranger_is_survived(cluster: Path) -> None:
    """After a crash the number may belong to another process of the same account: left alone.

    Postgres itself would refuse to start, for the pid file and for the lock of its socket.
    """
    with embedded_postgres(cluster, create=False, options=FAST) as url:
        left_behind = (cluster / "data" / "postmaster.pid").read_text().splitlines()
        sockets = socket_folder(url)
    account = (cluster / "data").stat().st_uid
    with subprocess.Popen(
        ["sleep", "600"], user=account if os.geteuid() == 0 else None
    ) as stranger:
        try:
            text = "\n".join([str(stranger.pid), *left_behind[1:]]) + "\n"
            sockets.mkdir(mode=0o700, exist_ok=True)
            for stale in (cluster / "data" / "postmaster.pid", sockets / ".s.PGSQL.5432.lock"):
                stale.write_text(text)
                os.chown(stale, account, -1)
                stale.chmod(0o600)

            with embedded_postgres(cluster, create=False, options=FAST) as url:
                assert remembers(url, "kept")
                assert server_pid(cluster) != stranger.pid
            assert_stopped(cluster, url)
            assert stranger.poll() is None, "the stranger was hit"
        finally:
            stranger.kill()


def test_ctrl_c_reaches_the_process_and_not_its_server(
    cluster: Path, hold: Callable[..., Holder]
) -> None:
    """The terminal signals the whole group; the block can still write before it ends."""
    holder = hold(
        """try:
        print("ready", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        import psycopg
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE last_words (word text)")
        print("wrote", flush=True)"""
    )
    url = holder.said()
    assert holder.said() == "ready"
    os.killpg(holder.process.pid, signal.SIGINT)

    assert holder.said() == "wrote"
    assert holder.process.wait(LIMIT_S) == 0
    assert_stopped(cluster, url)
    with embedded_postgres(cluster, create=False, options=FAST) as url:
        assert ask(url, "SELECT count(*) FROM last_words") == 0


def test_a_forked_child_that_unwinds_does_not_stop_the_server(
    cluster: Path, hold: Callable[..., Holder]
) -> None:
    """As in a prefork worker: the child inherited the block, but it did not enter it."""
    holder = hold(
        """child = os.fork()
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)
    print("child gone", flush=True)
    sys.stdin.readline()"""
    )
    url = holder.said()
    assert holder.said() == "child gone"
    assert ask(url, "SELECT 1") == 1
    assert holder.leave() == 0
    assert_stopped(cluster, url)


@pytest.mark.parametrize("whole_group", [True, False], ids=["with initdb", "alone"])
def test_a_cluster_left_half_made_is_never_taken_for_one(
    folder: Path, hold: Callable[..., Holder], *, whole_group: bool
) -> None:
    """Killed during initdb; with it, or alone so that initdb runs on while the next one comes."""
    holder = hold()
    unfinished = folder / "data.unfinished"
    wait_until(lambda: unfinished.exists() and any(unfinished.iterdir()), "initdb at work")
    if whole_group:
        os.killpg(holder.process.pid, signal.SIGKILL)
    holder.kill()

    assert not (folder / "data").exists(), "killed too late to prove anything"
    with (
        pytest.raises(EmbeddedUnavailable, match="There is no embedded database"),
        embedded_postgres(folder, create=False),
    ):
        pytest.fail("half a cluster was opened")

    with embedded_postgres(folder, create=True, options=FAST) as url:
        remember(url, "whole")
        assert not unfinished.exists()
        assert remembers(url, "whole")
    assert_stopped(folder, url)
