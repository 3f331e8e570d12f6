"""How long runs took, counted in buckets, so that the sum outlives the runs themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

# Upper bounds of the buckets. They stand in the totals of each database that rolled up: one may
# be added, but what was counted before stays in the bucket that it was counted in.
BOUNDS: Final = tuple(timedelta(seconds=s) for s in (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900))

# The arms of the totals that hold them.
_TOOK: Final = "took"
_TOOK_MS: Final = "took_ms"
MS: Final = timedelta(milliseconds=1)

# Job, arm and cause of an effect, as the journal names them.
Kind = tuple[str, str, str | None]


@dataclass(frozen=True, slots=True)
class Durations:
    """How long the finished runs of a job took: `within` counts those up to each bound.

    `total` is the sum of all `runs`.
    """

    within: tuple[int, ...]
    runs: int
    total: timedelta


def bounds_ms() -> list[int]:
    """The bounds as the statements take them."""
    return [bound // MS for bound in BOUNDS]


def told_apart(counts: Mapping[Kind, int]) -> tuple[dict[Kind, int], dict[str, Durations]]:
    """Effects on one side and the durations of each job's runs on the other."""
    effects: dict[Kind, int] = {}
    buckets: dict[str, Counter[str]] = {}
    sums_ms: Counter[str] = Counter()
    for (job, arm, cause), count in counts.items():
        if arm == _TOOK:
            buckets.setdefault(job, Counter())[cause or ""] += count
        elif arm == _TOOK_MS:
            sums_ms[job] += count
        else:
            effects[job, arm, cause] = count
    return effects, {job: _durations(found, sums_ms[job]) for job, found in buckets.items()}


def _durations(by_bucket: Mapping[str, int], sum_ms: int) -> Durations:
    bounded = {int(bound): runs for bound, runs in by_bucket.items() if bound.isdigit()}
    within = tuple(
        sum(runs for bound, runs in bounded.items() if bound <= limit) for limit in bounds_ms()
    )
    return Durations(within, sum(by_bucket.values()), sum_ms * MS)
