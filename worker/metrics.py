"""Every metric there is, with its unit and meaning, in one table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from memory import BOUNDARY_TAGS
from store.durations import BOUNDS, Durations
from store.harvest import OTHER, RESTRICTED_DIVERGENCE
from worker.jobs import JOBS

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
_SKIPS: Final = tuple(
    (job, reason)
    for job, reasons in {
        "reap": ("paused", "hold", "fresh_flip", "implausible_time", "breaker", "failing"),
        "flip_stale_running": (
            "paused",
            "sighting",
            "outage",
            "silence",
            "mass",
            "breaker",
            "failing",
            "checkpoint_locked",
            "no_checkpoints",
        ),
        "reconcile_parked": (
            "paused",
            "sighting",
            "checkpoint_locked",
            "undated_checkpoint",
            "no_checkpoints",
            "failing",
        ),
        "release_sessions": ("paused", "hold", "undo"),
        "drain_harvest": ("paused", "failing"),
    }.items()
    for reason in reasons
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
        _each((*_ROW_JOBS, "release_sessions")),
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
        "Attempts to release a transcript that failed; after the last one its entry is dead.",
        "attempts",
        known=((),),
        kind="counter",
    ),
    Metric(
        "memory_harvest_rejections_total",
        "Memory-harvest rejections that the server wrote down. A code that is none, and any past "
        "64 distinct ones, counts as other.",
        "rejections",
        ("code",),
        _each((RESTRICTED_DIVERGENCE, OTHER)),
        "counter",
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
        "Runs that ended, scheduled or by hand; partial: all was done but in some scopes.",
        "runs",
        ("job", "outcome"),
        tuple((job, outcome) for job in JOBS for outcome in ("succeeded", "partial", "failed")),
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
        "When a run of the job last did its work, if only in part, or 0 if none ever did.",
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
        "maintenance_job_window_open",
        "1 while the schedule of this process lets the job work, 0 outside its maintenance "
        "windows.",
        "1 or 0",
        ("job",),
    ),
    Metric(
        "maintenance_operator_failures",
        "Runs that no tick began (by hand, by request, the audit at a start) and that failed, and "
        "requests that were refused, within the last hour.",
        "runs and requests",
        ("job",),
        _each((*JOBS, "other")),
    ),
    Metric(
        "maintenance_failing_scopes",
        "Scopes in which the job could not do all it should, until it can.",
        "scopes",
        ("job",),
        _each((*_ROW_JOBS, "drain_harvest")),
    ),
    Metric(
        "maintenance_breaker_open",
        "1 while a breaker holds the job, everywhere or in some scope.",
        "1 or 0",
        ("job",),
        _each(JOBS),
    ),
    Metric(
        "maintenance_paused",
        "1 while a person has paused the job, everywhere or in some scope.",
        "1 or 0",
        ("job",),
        _each(JOBS),
    ),
    Metric(
        "maintenance_holds",
        "Holds in force: what they lie on, a whole scope or one row, nobody deletes.",
        "holds",
    ),
    Metric(
        "background_agents",
        "Rows of the ledger. Running and parked are exact; the others may be minutes old.",
        "rows",
        ("status",),
    ),
    Metric(
        "background_agents_overdue",
        "What the job would do now if no breaker, outage, silence, mass or pause held it: rows; "
        "outbox entries for release_sessions; rejections for drain_harvest. "
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
