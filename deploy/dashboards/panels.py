"""What the dashboards show: rows of panels, each with its queries, unit and meaning."""

from dataclasses import dataclass
from typing import Final, Literal

from deploy.dashboards.queries import (
    SELECTED,
    age_in_periods,
    duration,
    late_jobs,
    mean_duration,
    rise,
    rose,
    shown,
)

# How late a job is when the alert of that name tells of it.
LATE_PERIODS: Final = 3

Query = tuple[str, str]  # the expression, and the legend of its series


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. `unit` is Grafana's id; `bad_from`: from this value on it is red, if it ever is.

    `answers` are words for values that are states and not numbers.
    """

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    kind: Literal["number", "graph", "states"] = "graph"
    bad_from: float | None = None
    bad_below: float | None = None
    answers: tuple[tuple[int, str], ...] = ()
    stacked: bool = False
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


YES_NO: Final = ((0, "no"), (1, "yes"))


def _sum(metric: str, title: str, description: str, unit: str = "short") -> Panel:
    """A number that should be 0."""
    return Panel(title, description, unit, ((f"sum({shown(metric)})", title),), "number", 1)


WELL: Final = Row(
    "Is it well?",
    (
        Panel(
            "Database",
            "Whether any process gets from the database what it asks for.",
            "short",
            ((f"max({shown('maintenance_store_up')})", "database"),),
            "number",
            bad_below=1,
            answers=((0, "away"), (1, "answers")),
        ),
        Panel(
            "Late jobs",
            f"Jobs that have not done their work for {LATE_PERIODS} periods of their schedule, or "
            "never did.",
            "short",
            ((late_jobs(LATE_PERIODS), "late jobs"),),
            "number",
            1,
        ),
        _sum(
            "maintenance_failing_scopes",
            "Failing scopes",
            "Scopes in which a job could not do all it should, added up over the jobs.",
        ),
        _sum(
            "maintenance_breaker_open",
            "Open breakers",
            "Jobs that a breaker holds, everywhere or in some scope. Some wait for a person.",
        ),
        _sum(
            "maintenance_paused",
            "Paused jobs",
            "Jobs that a person has paused, everywhere or in some scope.",
        ),
        Panel(
            "Dead transcripts",
            "Releases that were given up: their transcripts are still there.",
            "short",
            ((f"sum({shown('background_agent_session_releases', state='dead')})", "dead"),),
            "number",
            1,
        ),
        _sum(
            "memory_boundary_warning",
            "Memory warnings",
            "Reasons found by the last memory audit for which agents cannot write memory.",
        ),
        Panel(
            "Processes",
            "Workers and beats that are scraped, by release.",
            "short",
            ((f"count by (version) (maintenance_build_info{SELECTED})", "{{version}}"),),
            "number",
        ),
    ),
)

JOBS: Final = Row(
    "Jobs",
    (
        Panel(
            "Since the last success, in periods",
            "For how many periods of its own schedule a job has not done its work. About 1 is "
            f"usual; from {LATE_PERIODS} on an alert tells. A job that never did it is far above.",
            "none",
            ((age_in_periods(), "{{job}}"),),
            bad_from=LATE_PERIODS,
        ),
        Panel(
            "Since the last success",
            "How long ago each job last did its work, if only in part.",
            "s",
            (
                (
                    f"time() - ({shown('maintenance_job_last_completed_timestamp_seconds')} > 0)",
                    "{{job}}",
                ),
            ),
        ),
        Panel(
            "Period",
            "How often the schedule of the processes runs each job. Two values for one job: the "
            "processes do not have the same policy file.",
            "s",
            ((shown("maintenance_job_interval_seconds"), "{{job}}"),),
        ),
        Panel(
            "Runs by outcome",
            "Runs that ended, scheduled or by hand. Partial: all was done but in some scopes.",
            "short",
            ((rose("maintenance_job_runs_total"), "{{job}} {{outcome}}"),),
            stacked=True,
        ),
        Panel(
            "Run time, 95 of 100 runs",
            "How long 95 of 100 runs of the past hour took at most, from their beginning to the "
            "end of their last part.",
            "s",
            ((duration(0.95, "1h"), "{{job}}"),),
        ),
        Panel(
            "Run time, mean",
            "How long the runs of the past hour took on average.",
            "s",
            ((mean_duration("1h"), "{{job}}"),),
        ),
        Panel(
            "Maintenance windows",
            "Whether the schedule lets each job work now. A job without windows may always.",
            "short",
            ((shown("maintenance_job_window_open"), "{{job}}"),),
            "states",
            answers=((0, "closed"), (1, "open")),
        ),
        Panel(
            "Asked for in vain",
            "Runs that no tick began and that failed, and requests that were refused, within the "
            "past hour.",
            "short",
            ((shown("maintenance_operator_failures"), "{{job}}"),),
            bad_from=1,
        ),
    ),
)

BACKLOG: Final = Row(
    "What is waiting",
    (
        Panel(
            "Overdue",
            "What each job would do now if nothing held it: rows; transcripts for "
            "release_sessions; rejections for drain_harvest. May be minutes old.",
            "short",
            ((shown("background_agents_overdue"), "{{job}}"),),
        ),
        Panel(
            "Oldest overdue",
            "For how long each job could have done the oldest of what is overdue. May be minutes "
            "old.",
            "s",
            ((shown("background_agent_oldest_overdue_seconds"), "{{job}}"),),
        ),
        Panel(
            "Rows of the ledger",
            "Rows by status. Running and parked are exact, the others may be minutes old.",
            "short",
            ((shown("background_agents"), "{{status}}"),),
            stacked=True,
        ),
    ),
)

EFFECTS: Final = Row(
    "What is done",
    (
        Panel(
            "Reaped",
            "Finished rows deleted by retention: by age, or beyond the number to keep.",
            "short",
            ((rose("background_agent_reaped_total"), "{{arm}}"),),
            stacked=True,
        ),
        Panel(
            "Flipped",
            "Running rows marked failed because their writer fell silent.",
            "short",
            ((rose("background_agent_stale_flipped_total"), "flipped"),),
        ),
        Panel(
            "Reconciled",
            "Rows that followed their approval, by what became of them and why.",
            "short",
            ((rose("background_agent_reconciled_total"), "{{outcome}}: {{cause}}"),),
            stacked=True,
        ),
        Panel(
            "Transcripts released",
            "Transcripts of deleted rows that were deleted, and attempts at it that failed.",
            "short",
            (
                (rose("background_agent_sessions_released_total"), "released"),
                (rose("background_agent_session_release_failures_total"), "failed attempts"),
            ),
        ),
        Panel(
            "Transcripts waiting",
            "Releases by state: to come, put aside because the transcript was written to after its "
            "row had settled (suspect), or given up (dead).",
            "short",
            ((shown("background_agent_session_releases"), "{{state}}"),),
        ),
        Panel(
            "Done in the time shown",
            "What the jobs did between the two ends of the time range.",
            "short",
            (
                (f"sum({rise('background_agent_reaped_total', '$__range')})", "reaped"),
                (f"sum({rise('background_agent_stale_flipped_total', '$__range')})", "flipped"),
                (f"sum({rise('background_agent_reconciled_total', '$__range')})", "reconciled"),
                (
                    f"sum({rise('background_agent_sessions_released_total', '$__range')})",
                    "released",
                ),
            ),
            "number",
        ),
    ),
)

LEFT_ALONE: Final = Row(
    "What is left alone",
    (
        Panel(
            "Skipped, by reason",
            "Rows that were due and passed over, by the guard or circumstance that kept them back. "
            "A row counts once a run for each reason.",
            "short",
            ((rose("background_agent_skipped_total"), "{{job}}: {{reason}}"),),
        ),
        Panel(
            "Lost races",
            "Rows left alone because another writer, or another job, changed or held them first. "
            "The live writer won, as it should.",
            "short",
            ((rose("background_agent_lost_race_total"), "{{job}}"),),
        ),
        Panel(
            "Breakers",
            "Whether a breaker holds the job, everywhere or in some scope.",
            "short",
            ((shown("maintenance_breaker_open"), "{{job}}"),),
            "states",
            bad_from=1,
            answers=YES_NO,
        ),
        Panel(
            "Pauses",
            "Whether a person has paused the job, everywhere or in some scope.",
            "short",
            ((shown("maintenance_paused"), "{{job}}"),),
            "states",
            bad_from=1,
            answers=YES_NO,
        ),
        Panel(
            "Failing scopes",
            "Scopes in which the job could not do all it should.",
            "short",
            ((shown("maintenance_failing_scopes"), "{{job}}"),),
            bad_from=1,
        ),
        Panel(
            "Holds",
            "Holds in force: what they lie on, a whole scope or one row, nobody deletes.",
            "short",
            ((shown("maintenance_holds"), "holds"),),
        ),
    ),
)

MEMORY: Final = Row(
    "Memory",
    (
        Panel(
            "Harvest rejections",
            "Memory-harvest rejections that the server wrote down, by code.",
            "short",
            ((rose("memory_harvest_rejections_total"), "{{code}}"),),
            stacked=True,
        ),
        Panel(
            "Memory audit",
            "Whether the last audit found that agents cannot write memory, by reason.",
            "short",
            ((shown("memory_boundary_warning"), "{{tag}}"),),
            "states",
            bad_from=1,
            answers=YES_NO,
        ),
    ),
)

DATABASE: Final = Row(
    "Database and clocks",
    (
        Panel(
            "Clock skew",
            "By how much the database's clock, the one that judges, is ahead of each process's.",
            "s",
            ((f"maintenance_clock_skew_seconds{SELECTED}", "{{instance}}"),),
            signed=True,
        ),
        Panel(
            "Oldest open transaction",
            "For how long an open transaction has kept dead rows from being removed, as far as the "
            "worker's role may see.",
            "s",
            ((shown("maintenance_xmin_horizon_age_seconds"), "age"),),
        ),
        Panel(
            "Database, by process",
            "Whether each process gets from the database what it asks for.",
            "short",
            ((f"maintenance_store_up{SELECTED}", "{{instance}}"),),
            "states",
            bad_below=1,
            answers=((0, "away"), (1, "answers")),
        ),
    ),
)

ROWS: Final = (WELL, JOBS, BACKLOG, EFFECTS, LEFT_ALONE, MEMORY, DATABASE)
