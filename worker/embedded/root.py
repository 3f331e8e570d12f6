"""Let root have an embedded Postgres, which itself refuses to run as root.

The server then runs under an account without privileges. Nothing that belongs to the user is
opened up for that account: when it cannot reach the folder, the cluster lives under ROOT_DIR and a
symbolic link in the folder says where; when it cannot reach the programs, they are copied there.
An ordinary user never comes here for more than the answer that nothing has to change.
"""

import errno
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from worker.embedded.locks import FileLock

if sys.platform != "win32":
    import pwd

ROOT_DIR = Path("/var/lib/sema-maintenance")
INSTEAD = "set MAINT_DATABASE_URL to a database of your own"

_POINTER = "kept-at"
_UNPRIVILEGED = "nobody"
_COPY_WAIT_S = 120.0
_PROBE_S = 20.0
# WHY not the caller's environment: a PGOPTIONS or PGSSLMODE meant for another database must not
# reach this one, and messages are read here in English.
_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "PGCONNECT_TIMEOUT": "5"}


class EmbeddedUnavailable(Exception):
    """There is no embedded database to work on. The message is one sentence with the remedy."""


@dataclass(frozen=True, slots=True)
class Account:
    """Who the server runs as; this process's own account unless that is root."""

    uid: int
    gid: int

    def run(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        timeout_s: float,
        stdin: str = "",
        inherit: Sequence[int] = (),
        environ: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as this account, its output captured. Raises OSError, TimeoutExpired.

        `environ` comes on top of the environment that every program has here.
        """
        switch = os.geteuid() != self.uid
        return subprocess.run(  # noqa: S603 - programs of our own choice, and no shell
            command,
            cwd=cwd,
            env={**_ENVIRONMENT, **(environ or {})},
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            check=False,
            pass_fds=inherit,
            user=self.uid if switch else None,
            group=self.gid if switch else None,
            extra_groups=[] if switch else None,
        )

    def succeeds(self, *command: str) -> bool:
        """Whether this account can run a program to a good end."""
        try:
            return self.run(command, cwd=Path("/"), timeout_s=_PROBE_S).returncode == 0
        except PermissionError as error:
            if error.errno == errno.EPERM:
                raise EmbeddedUnavailable(
                    "Postgres refuses to run as root and this process may not change to another "
                    f"account: start it as an ordinary user, or {INSTEAD}."
                ) from error
            return False


def server_account(home: Path) -> Account:
    """Who runs the server of a cluster in `home`: root leaves a user's cluster to that user."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    for path in (home / "data", home):
        if path.exists() and path.stat().st_uid != 0:
            return Account(path.stat().st_uid, path.stat().st_gid)
    try:
        nobody = pwd.getpwnam(_UNPRIVILEGED)
    except KeyError as error:
        raise EmbeddedUnavailable(
            f"Postgres refuses to run as root and this system has no account {_UNPRIVILEGED}: "
            f"start it as an ordinary user, or {INSTEAD}."
        ) from error
    return Account(nobody.pw_uid, nobody.pw_gid)


def cluster_home(folder: Path, *, create: bool, root_dir: Path) -> Path:
    """Where the cluster of `folder` lives: there, or under `root_dir` when root made it.

    Raises EmbeddedUnavailable for a link that leads anywhere else.
    """
    pointer = folder / _POINTER
    if not pointer.is_symlink():
        if os.geteuid() != 0 or (folder / "data").exists() or not create:
            return folder
        if server_account(folder).succeeds("/bin/sh", "-c", 'test -x "$1"', "sh", str(folder)):
            return folder
        _point_elsewhere(pointer, root_dir)
    home = pointer.readlink()
    # WHY: root follows this link, and whoever can write to the folder could have placed it.
    if home.parent != root_dir.resolve():
        raise EmbeddedUnavailable(
            f"{pointer} leads out of {root_dir}: remove it to begin anew, or {INSTEAD}."
        )
    if create and os.geteuid() == 0:
        home.mkdir(exist_ok=True)
        home.chmod(0o755)
    return home


def _point_elsewhere(pointer: Path, root_dir: Path) -> None:
    """Give a folder a home under `root_dir`, once, whoever else does so at this moment.

    The name is random: a folder that is deleted and made anew gets a new database, as it would
    have if the cluster had been inside.
    """
    home = Path(tempfile.mkdtemp(prefix="cluster-", dir=_own_root_dir(root_dir)))
    try:
        pointer.symlink_to(home)
    except FileExistsError:
        home.rmdir()


def reachable_programs(bin_dir: Path, account: Account, *, root_dir: Path) -> Path:
    """A folder of the same Postgres programs that `account` can run; copies them once if needed."""
    if account.uid == os.geteuid() or account.succeeds(str(bin_dir / "initdb"), "--version"):
        return bin_dir
    banner = Account(os.geteuid(), os.getegid()).run(
        [str(bin_dir / "postgres"), "--version"], cwd=Path("/"), timeout_s=_PROBE_S
    )
    words = banner.stdout.split()
    if banner.returncode != 0 or len(words) < 3:
        raise EmbeddedUnavailable(
            f"The Postgres programs in {bin_dir} do not run: install them anew, or {INSTEAD}."
        )
    copy = _own_root_dir(root_dir) / f"postgres-{words[2]}"
    package = bin_dir.parent.parent
    with FileLock(root_dir / "copy.lock") as lock, lock.alone(_COPY_WAIT_S):
        if not copy.exists():
            unfinished = copy.with_name(f"{copy.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            _copy_programs(package, bin_dir.parent.name, unfinished)
            unfinished.rename(copy)
    return copy / package.name / bin_dir.parent.name / bin_dir.name


def _copy_programs(package: Path, installation: str, target: Path) -> None:
    """Copy a Postgres and the libraries that its wheel keeps beside it, readable for everyone."""
    for part in (
        package / installation,
        package.with_name(f"{package.name}.libs"),  # where wheels for Linux keep libraries
        package / ".dylibs",  # where wheels for macOS do
    ):
        if part.is_dir():
            shutil.copytree(part, target / part.relative_to(package.parent), symlinks=True)
    for path in (target, *target.rglob("*")):
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | (0o555 if path.is_dir() or mode & stat.S_IXUSR else 0o444))


def _own_root_dir(root_dir: Path) -> Path:
    """Make sure that `root_dir` exists, open to pass through, and that only root can change it."""
    root_dir.mkdir(parents=True, exist_ok=True)
    if root_dir.stat().st_uid != os.geteuid():
        raise EmbeddedUnavailable(
            f"{root_dir} does not belong to root: give it back to root, or {INSTEAD}."
        )
    root_dir.chmod(0o755)
    return root_dir.resolve()
