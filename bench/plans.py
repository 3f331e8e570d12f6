"""`python -m bench.plans`: how much memory and time a plan of many rows takes, made and applied.

Each command is a process of its own, as a person starts it; its peak of resident memory is the
kernel's figure. Beside it stands the same with a hundredth of the rows.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from store.database import Database
from store.migrate import create_ledger, migrate
from tests.ledgers import why_unavailable
from tests.servers import postgres_15_bin, throwaway_postgres

_ROWS = """
insert into public.background_agents
    (scope, handle, rev, status, owner, session_scoped, writer_id, session_id, spawned_at,
     updated_at, settled_at)
select 'tenant/' || n % {scopes}, 'agent-' || n, 1, 'completed', 'o', false, 'w', 'session-' || n,
    1500000000000, 1500000000000 + n, 1500000000000 + n
from generate_series(1, {rows}) n
"""


def _load(url: str, rows: int, scopes: int) -> None:
    with closing(Database(url)) as database:
        create_ledger(database)
        migrate(database)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_ROWS.format(rows=rows, scopes=scopes).encode())
        connection.execute("vacuum analyze public.background_agents")


def _measure(url: str, *command: str) -> tuple[float, float]:
    """Seconds, and MiB at the peak."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAINT_")}
    settings = {"MAINT_DATABASE_URL": url, "MAINT_MAX_ROWS_PER_SECOND": "1000000"}
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "worker", *command],
        env=kept | settings,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"{' '.join(command)} failed")
    return time.monotonic() - began, usage.ru_maxrss / 1024


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.plans", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--scopes", type=int, default=200)
    parser.add_argument("--versions", nargs="*", default=["15", "18"])
    options = parser.parse_args()
    print(f"{'Postgres':10}{'rows':>12}{'command':>12}{'seconds':>10}{'peak MiB':>10}")
    for version in options.versions:
        if reason := why_unavailable(version):
            print(f"Postgres {version} left out: {reason}")
            continue
        bin_dir = postgres_15_bin() if version == "15" else None
        for rows in (options.rows // 100, options.rows):
            with throwaway_postgres(bin_dir) as url, TemporaryDirectory() as folder:
                _load(url, rows, options.scopes)
                file = str(Path(folder) / "reap.plan")
                for name, command in {
                    "plan": ("plan", "reap", "--all-scopes", "--max-age", "30d", "-o", file),
                    "apply": ("apply", file, "--yes"),
                }.items():
                    seconds, peak = _measure(url, *command)
                    print(
                        f"{version:10}{rows:>12,}{name:>12}{seconds:>10.1f}{peak:>10.0f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
