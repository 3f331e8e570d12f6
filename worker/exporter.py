"""The journal and the ledger, shown to Prometheus: what is known, as values of `worker.metrics`.

Any process may show them, since all of them are read from the database: add up or compare them with
`max without (instance, pod)`. A scrape never fails and never waits long. While the database is out
of reach, counters and other facts of the past stay as they were last read, what describes the
present is left out, and `maintenance_store_up` is 0. What was never read is left out as well: a 0
that is not true would look like a reset.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from importlib import metadata
from types import MappingProxyType
from typing import Final

from prometheus_client.core import CollectorRegistry
from prometheus_client.registry import Collector

from config.windows import Windows
from store.durations import Kind
from worker.metrics import METRICS, Family, Labels, Values
from worker.readings import Known, Past, Present, Readings
from worker.schedule import Entry, open_for

_SECOND: Final = timedelta(seconds=1)


def series_of(job: str, arm: str, cause: str | None) -> tuple[str, Labels] | None:
    """The counter, and its label values, that shows this kind of effect of the journal, if any."""
    cause = cause or "unknown"
    match job, arm:
        case _, "run":
            return "maintenance_job_runs_total", (job, cause)
        case _, "lost_race":
            return "background_agent_lost_race_total", (job,)
        case _, "skipped":
            return "background_agent_skipped_total", (job, cause)
        case "reap", "max_age" | "keep":
            return "background_agent_reaped_total", (arm,)
        case "flip_stale_running", "flipped":
            return "background_agent_stale_flipped_total", ()
        case "reconcile_parked", "failed" | "rolled_back":
            return "background_agent_reconciled_total", (arm, cause)
        case "release_sessions", "released":
            return "background_agent_sessions_released_total", ()
        case "drain_harvest", "rejected":
            return "memory_harvest_rejections_total", (cause,)
        case "release_sessions", "locked" | "failed":
            return "background_agent_session_release_failures_total", ()
        case _:
            return None


def counters(totals: Mapping[Kind, int]) -> dict[str, dict[Labels, float]]:
    """The values of every counter, from everything that the journal has."""
    shown: dict[str, dict[Labels, float]] = {m.name: {} for m in METRICS if m.kind == "counter"}
    for kind, count in totals.items():
        series = series_of(*kind)
        if series is not None:
            name, labels = series
            shown[name][labels] = shown[name].get(labels, 0) + count
    return shown


def _past(past: Past) -> dict[str, Values]:
    """What was read of the past, without the run times."""
    return {
        **counters(past.totals),
        "memory_boundary_warning": {(tag,): 1 for tag in past.warnings},
        "maintenance_job_last_completed_timestamp_seconds": {
            (job,): at / 1000 for job, at in past.completed_at.items()
        },
    }


def _present(present: Present) -> dict[str, Values]:
    """What was read of the present, without the rows of the ledger."""
    return {
        "background_agent_session_releases": {
            (state,): count for state, count in present.releases.items()
        },
        "maintenance_xmin_horizon_age_seconds": {(): present.horizon_age / _SECOND},
        "maintenance_failing_scopes": {(job,): count for job, count in present.failing.items()},
        "maintenance_breaker_open": {(job,): 1 for job in present.breakers},
        "maintenance_paused": {(job,): 1 for job in present.pauses},
        "maintenance_holds": {(): present.holds},
        "maintenance_operator_failures": {
            (job,): count for job, count in present.operator_failures.items()
        },
    }


def values(
    known: Known, entries: Collection[Entry], version: str, closed: Collection[str] = ()
) -> dict[str, Values]:
    """The values of every metric that can be shown; the histogram is made of `known` itself.

    `closed`: the jobs that are outside their maintenance windows.
    """
    shown: dict[str, Values] = {} if known.past is None else _past(known.past)
    agents = dict(known.terminal or {})
    if known.present is not None:
        agents |= known.present.live
        shown |= _present(known.present)
    if known.clock_skew is not None:
        shown["maintenance_clock_skew_seconds"] = {(): known.clock_skew / _SECOND}
    return shown | {
        "background_agents": {(status,): count for status, count in agents.items()},
        "background_agents_overdue": {(job,): b.rows for job, b in known.overdue.items()},
        "background_agent_oldest_overdue_seconds": {
            (job,): b.oldest_ms / 1000 for job, b in known.overdue.items()
        },
        "maintenance_job_interval_seconds": {(e.job,): e.every / _SECOND for e in entries},
        "maintenance_job_window_open": {(e.job,): e.job not in closed for e in entries},
        "maintenance_store_up": {(): known.up},
        "maintenance_build_info": {(version,): 1},
    }


class Exporter(Collector):
    """The metrics of one process, in a registry of their own."""

    def __init__(
        self,
        readings: Readings,
        entries: Iterable[Entry],
        windows: Mapping[str, Windows] = MappingProxyType({}),
    ) -> None:
        self._readings = readings
        self._entries = tuple(entries)
        self._windows = windows
        self._version = metadata.version("sema-maintenance")
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def describe(self) -> Iterator[Family]:
        """Every metric there is, for its name and kind only. Asks nobody."""
        for metric in METRICS:
            yield metric.histogram({}) if metric.kind == "histogram" else metric.family({})

    def _closed(self, known: Known) -> list[str]:
        """The jobs outside their windows, by the database's clock while that is known."""
        now_ms = int((time.time() + (known.clock_skew or timedelta(0)) / _SECOND) * 1000)
        return [job for job in self._windows if not open_for(self._windows, job, now_ms)]

    def collect(self) -> Iterator[Family]:
        """Every metric of which something is known. Never raises."""
        known = self._readings.known()
        shown = values(known, self._entries, self._version, self._closed(known))
        for metric in METRICS:
            if metric.kind == "histogram" and known.past is not None:
                yield metric.histogram(known.past.durations)
            elif metric.name in shown and (family := metric.family(shown[metric.name])).samples:
                yield family
