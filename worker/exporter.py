"""The journal and the ledger, shown to Prometheus. Every metric there is stands in one table below.

Any process may show them, since all of them are read from the database: add up or compare them with
`max without (instance, pod)`. A scrape never fails and never waits long. While the database is out
of reach, counters and other facts of the past stay as they were last read, what describes the
present is left out, and `maintenance_store_up` is 0. What was never read is left out as well: a 0
that is not true would look like a reset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib import metadata
from typing import Final, Literal

from prometheus_client.core import (
    CollectorRegistry,
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector

from memory import BOUNDARY_TAGS
from store.figures import Durations, Kind
from worker.jobs import JOBS
from worker.readings import BOUNDS, Known, Past, Readings
from worker.schedule import Entry

Labels = tuple[str, ...]
Values = Mapping[Labels, float]
Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

_SECOND: Final = timedelta(seconds=1)

_ROW_JOBS: Final = ("reap", "flip_stale_running", "reconcile_parked")
_CAUSES: Final = (
    ("failed", "checkpoint_expired"),
    ("failed", "checkpoint_missing"),
    ("failed", "stranded"),
    ("rolled_back", "stale_claim"),
)
_SKIPS: Final = (
    ("flip_stale_running", "checkpoint_locked"),
    ("reconcile_parked", "checkpoint_locked"),
    ("reconcile_parked", "undated_checkpoint"),
)


def _each(values: Iterable[str]) -> tuple[Labels, ...]:
    return tuple((value,) for value in values)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric as documented; `known` are the series that every reading of it shows, if at 0.

    No label is ever the name of a scope, a row or a session.
    """

    name: str
    meaning: str
    unit: str
    labels: tuple[str, ...] = ()
    known: tuple[Labels, ...] = ()
    kind: Literal["counter", "gauge", "histogram"] = "gauge"

    def family(self, values: Values) -> Family:
        """The metric with these values, by the values of its labels."""
        kind = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        family = kind(self.name, self.help, labels=self.labels)
        for labels, value in (dict.fromkeys(self.known, 0.0) | dict(values)).items():
            family.add_metric(labels, value)
        return family

    def histogram(self, durations: Mapping[str, Durations]) -> HistogramMetricFamily:
        """The metric with run times by job."""
        family = HistogramMetricFamily(self.name, self.help, labels=self.labels)
        none = Durations((0,) * len(BOUNDS), 0, timedelta(0))
        for labels, took in ({job: none for (job,) in self.known} | dict(durations)).items():
            buckets = [(str(b / _SECOND), n) for b, n in zip(BOUNDS, took.within, strict=True)]
            buckets.append(("+Inf", took.runs))
            family.add_metric([labels], buckets, took.total / _SECOND)
        return family

    @property
    def help(self) -> str:
        """What an operator reads beside the metric."""
        return f"{self.meaning} Unit: {self.unit}."


METRICS: Final = (
    Metric(
        "background_agent_reaped_total",
        "Terminal rows deleted by retention.",
        "rows",
        ("arm",),
        _each(("max_age", "keep")),
        "counter",
    ),
    Metric(
        "background_agent_stale_flipped_total",
        "Running rows marked failed because their writer fell silent.",
        "rows",
        known=((),),
        kind="counter",
    ),
    Metric(
        "background_agent_reconciled_total",
        "Rows that followed their approval checkpoint.",
        "rows",
        ("outcome", "cause"),
        _CAUSES,
        "counter",
    ),
    Metric(
        "background_agent_lost_race_total",
        "Rows left alone because another writer, or another job, changed or held them first.",
        "rows",
        ("job",),
        _each(_ROW_JOBS),
        "counter",
    ),
    Metric(
        "background_agent_skipped_total",
        "Rows that were due and passed over.",
        "rows",
        ("job", "reason"),
        _SKIPS,
        "counter",
    ),
    Metric(
        "background_agent_sessions_released_total",
        "Transcripts of deleted rows that were deleted.",
        "transcripts",
        known=((),),
        kind="counter",
    ),
    Metric(
        "background_agent_session_release_failures_total",
        "Attempts to release a transcript that failed and are made again.",
        "attempts",
        known=((),),
        kind="counter",
    ),
    Metric(
        "memory_boundary_warning",
        "1 while the last memory audit found that agents cannot write memory, for this reason.",
        "1 or 0",
        ("tag",),
        _each(BOUNDARY_TAGS),
    ),
    Metric(
        "maintenance_job_runs_total",
        "Runs that ended, scheduled or by hand.",
        "runs",
        ("job", "outcome"),
        tuple((job, outcome) for job in JOBS for outcome in ("succeeded", "failed")),
        "counter",
    ),
    Metric(
        "maintenance_job_duration_seconds",
        "How long runs took from their beginning to the end of their last part.",
        "seconds",
        ("job",),
        _each(JOBS),
        "histogram",
    ),
    Metric(
        "maintenance_job_last_completed_timestamp_seconds",
        "When a run of the job last succeeded, or 0 if none ever did.",
        "seconds since the Unix epoch",
        ("job",),
        _each(JOBS),
    ),
    Metric(
        "maintenance_job_interval_seconds",
        "How often the schedule of this process runs the job.",
        "seconds",
        ("job",),
    ),
    Metric(
        "background_agents",
        "Rows of the ledger. Running and parked are exact; the others may be minutes old.",
        "rows",
        ("status",),
    ),
    Metric(
        "background_agents_overdue",
        "What the job would do now: rows, or outbox entries for release_sessions. "
        "May be minutes old.",
        "rows",
        ("job",),
    ),
    Metric(
        "background_agent_oldest_overdue_seconds",
        "For how long the job could have done the oldest of what is overdue, or 0. Rows beyond "
        "`keep` count as just due, since they have no date of becoming too many. "
        "May be minutes old.",
        "seconds",
        ("job",),
    ),
    Metric(
        "background_agent_session_releases",
        "Outbox entries: to be released, put aside because the transcript was written after its "
        "row had settled (suspect), or given up (dead).",
        "entries",
        ("state",),
    ),
    Metric(
        "maintenance_clock_skew_seconds",
        "By how much the database's clock, the one that judges, is ahead of this process's.",
        "seconds",
    ),
    Metric(
        "maintenance_xmin_horizon_age_seconds",
        "For how long an open transaction has kept dead rows of this database from being removed; "
        "of the sessions of other roles only what a member of pg_read_all_stats may see.",
        "seconds",
    ),
    Metric(
        "maintenance_store_up",
        "1 if the database gave what was last asked of it, 0 if it did not, or not in time.",
        "1 or 0",
    ),
    Metric("maintenance_build_info", "The release of this process.", "always 1", ("version",)),
)


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
        case "release_sessions", "locked":
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


def values(known: Known, entries: Iterable[Entry], version: str) -> dict[str, Values]:
    """The values of every metric that can be shown; the histogram is made of `known` itself."""
    shown: dict[str, Values] = {} if known.past is None else _past(known.past)
    agents = dict(known.terminal or {})
    if known.present is not None:
        agents |= known.present.live
        shown["background_agent_session_releases"] = {
            (state,): count for state, count in known.present.releases.items()
        }
        shown["maintenance_xmin_horizon_age_seconds"] = {(): known.present.horizon_age / _SECOND}
    if known.clock_skew is not None:
        shown["maintenance_clock_skew_seconds"] = {(): known.clock_skew / _SECOND}
    return shown | {
        "background_agents": {(status,): count for status, count in agents.items()},
        "background_agents_overdue": {(job,): b.rows for job, b in known.overdue.items()},
        "background_agent_oldest_overdue_seconds": {
            (job,): b.oldest_ms / 1000 for job, b in known.overdue.items()
        },
        "maintenance_job_interval_seconds": {(e.job,): e.every / _SECOND for e in entries},
        "maintenance_store_up": {(): known.up},
        "maintenance_build_info": {(version,): 1},
    }


class Exporter(Collector):
    """The metrics of one process, in a registry of their own."""

    def __init__(self, readings: Readings, entries: Iterable[Entry]) -> None:
        self._readings = readings
        self._entries = tuple(entries)
        self._version = metadata.version("sema-maintenance")
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def describe(self) -> Iterator[Family]:
        """Every metric there is, for its name and kind only. Asks nobody."""
        for metric in METRICS:
            yield metric.histogram({}) if metric.kind == "histogram" else metric.family({})

    def collect(self) -> Iterator[Family]:
        """Every metric of which something is known. Never raises."""
        known = self._readings.known()
        shown = values(known, self._entries, self._version)
        for metric in METRICS:
            if metric.kind == "histogram" and known.past is not None:
                yield metric.histogram(known.past.durations)
            elif metric.name in shown and (family := metric.family(shown[metric.name])).samples:
                yield family
