"""`make bench`: the jobs in rows per second, as ratios in one run, and what an idle tick costs."""

from __future__ import annotations

import argparse
import platform
from statistics import median

from bench.jobs import JOBS, measure
from bench.ledger import loaded
from bench.ticks import measure_ticks
from store.batches import BatchSize
from tests.ledgers import why_unavailable


def main() -> None:
    """Measure and print a table; figures are medians over the rounds."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--scopes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--per-row-rows", type=int, default=2_000)
    parser.add_argument("--versions", nargs="*", default=["15", "18"])
    parser.add_argument("--jobs", nargs="*", default=[job.name for job in JOBS])
    parser.add_argument("--rows-per-batch", type=int, default=BatchSize().rows)
    parser.add_argument("--scopes-per-batch", type=int, default=BatchSize().scopes)
    parser.add_argument("--tick-scopes", type=int, default=100_000, help="0: no idle ticks")
    options = parser.parse_args()
    size = BatchSize(options.rows_per_batch, options.scopes_per_batch)
    print(
        f"{options.rows:,} rows interleaved over {options.scopes} scopes, batches of"
        f" {size.scopes} scopes and {size.rows:,} rows, median of {options.rounds} rounds;"
        f" fsync and synchronous_commit on, autovacuum off; {platform.machine()}"
    )
    print(
        f"{'job':20}{'Postgres':>10}{'rows/s':>12}{'one statement':>16}{'of it':>7}"
        f"{'CAS per row':>13}{'times it':>10}"
    )
    for version in options.versions:
        if reason := why_unavailable(version):
            print(f"Postgres {version} left out: {reason}")
            continue
        for job in JOBS:
            if job.name not in options.jobs:
                continue
            with loaded(version, options.rows, options.scopes, job.mix) as ledger:
                rounds = [
                    measure(job, ledger, size, options.per_row_rows) for _ in range(options.rounds)
                ]
                ratio = median(speed.ours / speed.limit for speed in rounds)
                times = median(speed.ours / speed.per_row for speed in rounds)
                print(
                    f"{job.name:20}{ledger.version.split()[0]:>10}"
                    f"{median(speed.ours for speed in rounds):>12,.0f}"
                    f"{median(speed.limit for speed in rounds):>16,.0f}{ratio:>7.2f}"
                    f"{median(speed.per_row for speed in rounds):>13,.0f}{times:>10.0f}",
                    flush=True,
                )
    if options.tick_scopes:
        _ticks(options.versions, options.tick_scopes, options.rounds)


def _ticks(versions: list[str], scopes: int, rounds: int) -> None:
    print(f"\n{scopes:,} scopes, nothing due, median of {rounds} rounds")
    print(f"{'job':20}{'Postgres':>10}{'idle tick':>12}{'every scope':>14}")
    for version in versions:
        if why_unavailable(version):
            continue
        for tick in measure_ticks(version, scopes, rounds):
            print(
                f"{tick.job:20}{version:>10}{tick.idle * 1000:>9,.1f} ms"
                f"{tick.everywhere * 1000:>11,.0f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main()
