"""The README's tables are what the code says."""

import re
from pathlib import Path

from config.reference import settings_reference
from store.guards import LIFTABLE
from tasks import flip_stale_running, reap, reconcile_parked, release_sessions
from worker.metrics import METRICS

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_every_setting_stands_in_the_table_with_its_default_and_meaning() -> None:
    rows = [f"| `{name}` | {default} | {said} |" for name, default, said in settings_reference()]

    listed = [line for line in README.splitlines() if line.startswith("| `MAINT_")]

    assert listed == rows


def test_every_metric_stands_in_the_table_with_its_labels_and_meaning() -> None:
    rows = [
        f"| `{metric.name}` | {', '.join(metric.labels) or '-'} | {metric.meaning} |"
        for metric in METRICS
    ]

    listed = [
        line
        for line in README.splitlines()
        if line.startswith(("| `background_agent", "| `memory_", "| `maintenance_"))
    ]

    assert listed == rows


def test_every_name_in_a_report_is_explained() -> None:
    """What a run can count: each with its causes, and every reason to pass a row over."""
    section = README.partition("## What a run says it did")[2].partition("\n## ")[0]
    explained = {
        name
        for line in section.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([^`]+)`", line.split("|")[1])
    }
    counted = {
        name
        for task in (reap, flip_stale_running, reconcile_parked, release_sessions)
        for name in task.Report.__dataclass_fields__
        if name not in {"more", "failing", "skipped"}
    }
    series = {metric.name: metric.known for metric in METRICS}
    causes = {"/".join(each) for each in series["background_agent_reconciled_total"]}
    reasons = {f"skipped/{reason}" for _, reason in series["background_agent_skipped_total"]}

    missing = (counted - {"rolled_back"} | causes | reasons) - explained
    assert missing == set()


def test_every_guard_says_how_it_is_seen_and_lifted() -> None:
    rows = [line for line in README.splitlines() if "--override" in line and line[:1] == "|"]

    for guard in LIFTABLE:
        assert any(f"`--override {guard}`" in row for row in rows), guard
