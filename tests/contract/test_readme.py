"""The README's tables are what the code says."""

from pathlib import Path

from config.settings import settings_reference
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
