"""What is shown of what is known: names, labels, zeros, and what is left out."""

import threading
import time
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from config.policy import Policy
from config.settings import load_settings
from config.windows import parse_windows
from store.batches import Backlog
from store.durations import BOUNDS, Durations
from store.figures import Stopped
from tasks.context import Planned
from worker.context import Process
from worker.exporter import Exporter, counters, series_of, values
from worker.metrics import METRICS, Metric
from worker.readings import Known, Past, Present, Readings, backlog
from worker.schedule import entries

ENTRIES = entries({"reap": timedelta(minutes=3)}).values()

# Every metric that the contract names and whose job exists, with its labels.
CONTRACT = {
    "background_agent_reaped_total": ("arm",),
    "background_agent_stale_flipped_total": (),
    "background_agent_reconciled_total": ("outcome", "cause"),
    "background_agent_lost_race_total": ("job",),
    "background_agent_skipped_total": ("job", "reason"),
    "background_agent_sessions_released_total": (),
    "background_agent_session_release_failures_total": (),
    "memory_harvest_rejections_total": ("code",),
    "memory_boundary_warning": ("tag",),
    "maintenance_job_runs_total": ("job", "outcome"),
    "maintenance_job_duration_seconds": ("job",),
    "maintenance_job_last_completed_timestamp_seconds": ("job",),
    "maintenance_job_interval_seconds": ("job",),
    "maintenance_job_window_open": ("job",),
    "maintenance_operator_failures": ("job",),
    "maintenance_failing_scopes": ("job",),
    "maintenance_breaker_open": ("job",),
    "maintenance_paused": ("job",),
    "maintenance_holds": (),
    "background_agents": ("status",),
    "background_agents_overdue": ("job",),
    "background_agent_oldest_overdue_seconds": ("job",),
    "background_agent_session_releases": ("state",),
    "maintenance_clock_skew_seconds": (),
    "maintenance_xmin_horizon_age_seconds": (),
    "maintenance_store_up": (),
    "maintenance_build_info": ("version",),
}


class Told(Readings):
    """Readings whose answer was decided beforehand; nothing is read."""

    def __init__(self, known: Known) -> None:
        self._known = known

    def known(self) -> Known:
        return self._known


def shown(known: Known) -> dict[str, dict[tuple[str, ...], float]]:
    """What a scraper reads: the values of each series by name and by its label values, sorted."""
    text = generate_latest(Exporter(Told(known), ENTRIES).registry).decode()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


NOTHING_YET = Past({}, {}, {}, ())


def test_the_table_is_the_contract() -> None:
    assert {metric.name: metric.labels for metric in METRICS} == CONTRACT
    assert len(METRICS) == len(CONTRACT)


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.name)
def test_a_metric_says_what_it_is_and_its_name_its_kind(metric: Metric) -> None:
    assert metric.meaning.endswith(".")
    assert metric.help.endswith(f"Unit: {metric.unit}.")
    assert (metric.kind == "counter") == metric.name.endswith("_total")
    assert metric.name.endswith("_seconds") == metric.unit.startswith("seconds")
    assert all(len(labels) == len(metric.labels) for labels in metric.known)


def test_registering_asks_nobody() -> None:
    """A process without any database can be registered: `describe` has all the names."""
    process = Process(load_settings({}), Policy.empty())
    exporter = Exporter(Readings(process), process.entries.values())

    assert {family.name for family in exporter.describe()} == {
        metric.name.removesuffix("_total") for metric in METRICS
    }
    assert not {"pulse", "past", "present"} & {thread.name for thread in threading.enumerate()}
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        exporter.registry.register(exporter)


def test_its_registry_is_its_own() -> None:
    """Two exporters in one process do not meet, and nothing else is shown with them."""
    first, second = (Exporter(Told(Known(up=True)), ENTRIES) for _ in range(2))

    assert isinstance(first.registry, CollectorRegistry)
    assert first.registry is not second.registry
    assert b"python_info" not in generate_latest(first.registry)


def test_nothing_known_shows_no_false_zero() -> None:
    """Before the first reading there are no counters: a 0 would look like a reset."""
    assert set(shown(Known(up=False))) == {
        "maintenance_store_up",
        "maintenance_build_info",
        "maintenance_job_interval_seconds",
        "maintenance_job_window_open",
    }
    assert shown(Known(up=False))["maintenance_store_up"] == {(): 0}


def test_known_series_begin_at_zero() -> None:
    found = shown(Known(up=True, past=NOTHING_YET))

    jobs = {
        "reap",
        "flip_stale_running",
        "reconcile_parked",
        "release_sessions",
        "drain_harvest",
        "housekeeping",
        "audit_memory",
    }
    assert found["background_agent_reaped_total"] == {("max_age",): 0, ("keep",): 0}
    assert found["background_agent_stale_flipped_total"] == {(): 0}
    assert found["background_agent_reconciled_total"] == {
        ("checkpoint_expired", "failed"): 0,
        ("checkpoint_missing", "failed"): 0,
        ("stranded", "failed"): 0,
        ("stale_claim", "rolled_back"): 0,
    }
    assert set(found["background_agent_lost_race_total"]) == {
        ("reap",),
        ("flip_stale_running",),
        ("reconcile_parked",),
        ("release_sessions",),
    }
    assert found["background_agent_sessions_released_total"] == {(): 0}
    assert found["background_agent_session_release_failures_total"] == {(): 0}
    assert set(found["maintenance_job_runs_total"]) == {
        (job, outcome) for job in jobs for outcome in ("succeeded", "partial", "failed")
    }
    assert found["memory_harvest_rejections_total"] == {
        ("restricted_divergence",): 0,
        ("other",): 0,
    }
    assert set(found["background_agent_skipped_total"]) == {
        (job, reason)
        for job, reasons in {
            "reap": ("paused", "hold", "fresh_flip", "implausible_time", "breaker", "failing"),
            "flip_stale_running": (
                *("paused", "sighting", "outage", "silence", "mass"),
                *("breaker", "failing", "checkpoint_locked", "no_checkpoints"),
            ),
            "reconcile_parked": (
                *("paused", "sighting", "checkpoint_locked", "undated_checkpoint"),
                *("failing", "no_checkpoints"),
            ),
            "release_sessions": ("paused", "hold", "undo"),
            "drain_harvest": ("paused", "failing"),
        }.items()
        for reason in reasons
    }
    assert found["memory_boundary_warning"] == {
        ("memory_remote_lane_write_instruction_dropped",): 0,
        ("memory_root_outside_write_boundary",): 0,
    }
    assert found["maintenance_job_last_completed_timestamp_seconds"] == {(j,): 0 for j in jobs}
    assert found["maintenance_job_duration_seconds_count"] == {(j,): 0 for j in jobs}
    assert not any(
        value for name, series in found.items() if name.endswith("_total") for value in
        series.values()
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "series"),
    [
        (("reap", "max_age", None), ("background_agent_reaped_total", ("max_age",))),
        (("reap", "keep", None), ("background_agent_reaped_total", ("keep",))),
        (("flip_stale_running", "flipped", None), ("background_agent_stale_flipped_total", ())),
        (
            ("reconcile_parked", "failed", "stranded"),
            ("background_agent_reconciled_total", ("failed", "stranded")),
        ),
        (
            ("reconcile_parked", "rolled_back", "stale_claim"),
            ("background_agent_reconciled_total", ("rolled_back", "stale_claim")),
        ),
        (
            ("release_sessions", "released", None),
            ("background_agent_sessions_released_total", ()),
        ),
        (
            ("release_sessions", "locked", None),
            ("background_agent_session_release_failures_total", ()),
        ),
        (
            ("release_sessions", "failed", None),
            ("background_agent_session_release_failures_total", ()),
        ),
        (
            ("reconcile_parked", "lost_race", None),
            ("background_agent_lost_race_total", ("reconcile_parked",)),
        ),
        (
            ("flip_stale_running", "skipped", "checkpoint_locked"),
            ("background_agent_skipped_total", ("flip_stale_running", "checkpoint_locked")),
        ),
        (
            ("drain_harvest", "rejected", "too_large"),
            ("memory_harvest_rejections_total", ("too_large",)),
        ),
        # Counted rows that go: no rejection, and no effect on any agent.
        (("drain_harvest", "pruned", None), None),
        (
            ("audit_memory", "run", "failed"),
            ("maintenance_job_runs_total", ("audit_memory", "failed")),
        ),
        # No failure, and no transcript gone: the outbox by state tells of these.
        (("release_sessions", "absent", None), None),
        (("release_sessions", "named", None), None),
        (("release_sessions", "suspect", None), None),
        (("release_sessions", "cleared", None), None),
        (("release_sessions", "kept", None), None),
        # The last attempt was counted as it failed.
        (("release_sessions", "dead", None), None),
        (("rearm_releases", "rearmed", "dead"), None),
        # Written by a release that this one does not know.
        (("reap", "by_moonlight", None), None),
        (("flip_stale_running", "max_age", None), None),
    ],
)
def test_each_kind_of_the_journal_has_its_series(
    kind: tuple[str, str, str | None], series: tuple[str, tuple[str, ...]] | None
) -> None:
    assert series_of(*kind) == series


def test_counters_are_the_journals_sums_and_nothing_else() -> None:
    totals = {
        ("reap", "max_age", None): 7,
        ("reap", "by_moonlight", None): 1000,
        ("reconcile_parked", "failed", "stranded"): 2,
        ("reconcile_parked", "failed", "checkpoint_missing"): 3,
        ("load_sample", "run", "succeeded"): 1,
    }

    found = {name: series for name, series in counters(totals).items() if series}

    assert found == {
        "background_agent_reaped_total": {("max_age",): 7},
        "background_agent_reconciled_total": {
            ("failed", "stranded"): 2,
            ("failed", "checkpoint_missing"): 3,
        },
        "maintenance_job_runs_total": {("load_sample", "succeeded"): 1},
    }


def test_a_histogram_is_cumulative_and_ends_with_all_runs() -> None:
    within = (1, 1, 2, 2, 2, 3, 3, 3, 3, 3)
    took = Durations(within, runs=4, total=timedelta(seconds=1000, milliseconds=250))
    found = shown(Known(up=True, past=Past({}, {"reap": took}, {}, ())))

    buckets = found["maintenance_job_duration_seconds_bucket"]
    bounds = ["0.1", "0.5", "1.0", "2.5", "5.0", "10.0", "30.0", "60.0", "300.0", "900.0"]
    assert [bound.total_seconds() for bound in BOUNDS] == [float(bound) for bound in bounds]
    assert [buckets["reap", bound] for bound in [*bounds, "+Inf"]] == [*within, 4]
    assert found["maintenance_job_duration_seconds_count"]["reap",] == 4
    assert found["maintenance_job_duration_seconds_sum"]["reap",] == 1000.25
    assert buckets["audit_memory", "+Inf"] == 0


def test_everything_known_is_shown_in_its_unit() -> None:
    known = Known(
        up=True,
        past=Past({}, {}, {"reap": 1_796_029_200_250}, ("memory_root_outside_write_boundary",)),
        present=Present(
            {"running": 3, "parked": 0},
            {"pending": 5, "suspect": 1, "dead": 0},
            timedelta(milliseconds=1500),
            {"reap": 2},
            {"flip_stale_running": Stopped(everywhere=True, scopes=0)},
            {"reap": Stopped(everywhere=False, scopes=2)},
            holds=7,
            operator_failures={"reap": 2},
        ),
        clock_skew=timedelta(milliseconds=-40),
        terminal={"completed": 9, "failed": 2, "killed": 0},
        overdue={"reap": Backlog(4, 61_500)},
    )

    found = shown(known)

    completed = found["maintenance_job_last_completed_timestamp_seconds"]
    assert completed["reap",] == 1_796_029_200.25
    assert found["memory_boundary_warning"]["memory_root_outside_write_boundary",] == 1
    assert found["background_agents"] == {
        ("running",): 3,
        ("parked",): 0,
        ("completed",): 9,
        ("failed",): 2,
        ("killed",): 0,
    }
    assert found["background_agent_session_releases"]["pending",] == 5
    assert found["maintenance_xmin_horizon_age_seconds"] == {(): 1.5}
    assert found["maintenance_failing_scopes"]["reap",] == 2
    assert found["maintenance_failing_scopes"]["flip_stale_running",] == 0
    assert found["maintenance_breaker_open"]["flip_stale_running",] == 1
    assert found["maintenance_breaker_open"]["reap",] == 0
    assert found["maintenance_paused"]["reap",] == 1
    assert found["maintenance_paused"]["flip_stale_running",] == 0
    assert found["maintenance_holds"] == {(): 7}
    assert found["maintenance_operator_failures"]["reap",] == 2
    assert found["maintenance_operator_failures"]["other",] == 0
    assert found["maintenance_clock_skew_seconds"] == {(): -0.04}
    assert found["background_agents_overdue"] == {("reap",): 4}
    assert found["background_agent_oldest_overdue_seconds"] == {("reap",): 61.5}
    assert found["maintenance_store_up"] == {(): 1}
    assert found["maintenance_job_interval_seconds"]["reap",] == 180
    assert found["maintenance_job_interval_seconds"]["flip_stale_running",] == 60


def test_without_the_present_the_past_stays() -> None:
    """A database that is down leaves counters as they were and withdraws what was of the moment."""
    past = Past({("reap", "keep", None): 11}, {}, {"reap": 1000}, ())

    found = shown(Known(up=False, past=past))

    assert found["background_agent_reaped_total"]["keep",] == 11
    assert found["maintenance_job_last_completed_timestamp_seconds"]["reap",] == 1
    assert not found.keys() & {
        "background_agents",
        "background_agents_overdue",
        "background_agent_oldest_overdue_seconds",
        "background_agent_session_releases",
        "maintenance_failing_scopes",
        "maintenance_breaker_open",
        "maintenance_paused",
        "maintenance_holds",
        "maintenance_operator_failures",
        "maintenance_clock_skew_seconds",
        "maintenance_xmin_horizon_age_seconds",
    }


def test_a_job_outside_its_windows_is_shown_so() -> None:
    """By the database's clock: at its midnight a window of the first hour is open."""
    at_midnight = timedelta(seconds=86_400 - time.time() % 86_400, minutes=1)
    windows = {
        "reap": parse_windows(["00:00-01:00"]),
        "housekeeping": parse_windows(["02:00-03:00"]),
    }
    exporter = Exporter(Told(Known(up=True, clock_skew=at_midnight)), ENTRIES, windows)

    samples = [s for family in exporter.collect() for s in family.samples]

    opened = {s.labels["job"]: s.value for s in samples if s.name == "maintenance_job_window_open"}
    assert opened["reap"] == opened["flip_stale_running"] == 1
    assert opened["housekeeping"] == 0


def test_every_value_belongs_to_a_metric_of_the_table() -> None:
    present = Present({"running": 1}, {"pending": 1}, timedelta(0))
    everything = Known(
        up=True,
        past=NOTHING_YET,
        present=present,
        clock_skew=timedelta(0),
        overdue={"reap": Backlog(0, 0)},
    )

    made = {*values(everything, ENTRIES, "1.2.3"), "maintenance_job_duration_seconds"}

    assert made == set(CONTRACT)


@pytest.mark.parametrize(
    ("planned", "expected"),
    [
        ([], Backlog(0, 0)),
        (
            [Planned("a", "max_age", None, 3, 500), Planned("b", "max_age", None, 4, 900)],
            Backlog(7, 900),
        ),
        # Rows beyond `keep` are work, but when they became too many is not known.
        (
            [Planned("a", "max_age", None, 3, 500), Planned("b", "keep", None, 4, 86_400_000)],
            Backlog(7, 500),
        ),
        # What the job passes over because it is not due, or not yet, is no work of its own.
        *(
            ([Planned("a", "skipped", cause, 3, 500)], Backlog(0, 0))
            for cause in ("undated_checkpoint", "sighting", "fresh_flip", "implausible_time")
        ),
        # What something holds is due all the same.
        *(
            ([Planned("a", "skipped", cause, 3, 500)], Backlog(3, 500))
            for cause in ("breaker", "outage", "silence", "mass")
        ),
        # An approval that was withdrawn before its time: overdue since just now.
        ([Planned("a", "failed", "checkpoint_expired", 1, -60_000)], Backlog(1, 0)),
    ],
)
def test_the_backlog_of_a_dry_run(planned: list[Planned], expected: Backlog) -> None:
    assert backlog(planned) == expected
