"""The alert rules are whole: each says how bad it is, what was seen and what to do, tested."""

import importlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from memory import BOUNDARY_TAGS
from tests.alerts.rules import CASES, CHECKOUT, RULES, Alert, alerts, shortened
from tests.conftest import unavailable
from worker.cli.commands import _TARGETS
from worker.jobs import JOBS
from worker.metrics import METRICS

ALERTS = alerts()
# What must be told of, whatever else is.
WANTED = {
    "job not succeeding": "JobNotSucceeding",
    "never succeeded": "JobNeverSucceeded",
    "metrics absent": "MetricsAbsent",
    "store unreachable": "StoreUnreachable",
    "retention overdue": "RetentionOverdue",
    "backlog growing": "BacklogGrowing",
    "reap stalled": "ReapStalled",
    "reap spike": "ReapSpike",
    "harvest rejections": "HarvestRejections",
    "memory boundary in force": "MemoryBoundary",
    "lost-race ratio": "LostRaceRatio",
    "clock skew": "ClockSkew",
    "horizon pinned": "HorizonPinned",
    "releases dead": "ReleasesDead",
    "breaker open": "BreakerOpen",
    "stale flips in a burst": "StaleFlipsBurst",
    "operator job failed": "OperatorJobFailed",
}
SECTIONS = ("## Meaning", "## Impact", "## Diagnosis", "## Mitigation")
# Where a metric has no label `job` of its own, the series has that of the scrape.
AGGREGATED = {True: "max without (instance, pod) (", False: "max without (instance, pod, job) ("}
SERIES = re.compile(r"\b(?:background_agent|maintenance|memory)_\w+|\bbackground_agents\b")
RUNBOOKS = CHECKOUT / "docs" / "runbooks"

each_alert = pytest.mark.parametrize("alert", ALERTS, ids=lambda a: a.name)


def promtool(*arguments: str | Path) -> None:
    """Let promtool judge; its own words are the failure."""
    program = shutil.which("promtool")
    if program is None:
        unavailable("no promtool here: install Debian's package prometheus")
    done = subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", WANTED.values(), ids=WANTED.keys())
def test_what_must_be_told_of_has_an_alert(name: str) -> None:
    assert f"SemaMaintenance{name}" in {alert.name for alert in ALERTS}


def test_names_are_told_apart_and_the_file_is_read_whole() -> None:
    names = [alert.name for alert in ALERTS]

    assert len(names) == len({*names}) == RULES.read_text(encoding="utf-8").count("alert:")
    assert all(name.startswith("SemaMaintenance") for name in names)


@each_alert
def test_alert_says_how_bad_it_is_what_it_saw_and_where_to_read_on(alert: Alert) -> None:
    assert alert.severity in {"critical", "warning", "info"}
    assert alert.summary
    assert "{{ $value" in alert.description, "a description has numbers"
    assert alert.runbook_url == f"docs/runbooks/{alert.name}.md"
    assert (CHECKOUT / alert.runbook_url).is_file()


@each_alert
def test_every_series_is_a_metric_that_is_exported_and_every_process_counts_once(
    alert: Alert,
) -> None:
    """A function of one process's series may stand between the series and the aggregation."""
    exported = {metric.name: "job" in metric.labels for metric in METRICS}
    series = SERIES.findall(alert.expr)

    assert series
    assert {*series} <= {*exported}
    within = r"(?:(?:\w+_over_time|delta|abs)\()?"
    for has_job, aggregated in AGGREGATED.items():
        found = re.findall(re.escape(aggregated) + within + f"({SERIES.pattern})", alert.expr)
        assert found == [name for name in series if exported[name] is has_job]


@each_alert
def test_label_values_that_are_named_are_known(alert: Alert) -> None:
    """A slip in one would be an alert that never fires."""
    known = {label for metric in METRICS for row in metric.known for label in row}
    known |= {*JOBS, *BOUNDARY_TAGS, "dead", "suspect", "running", ""}

    assert {*re.findall(r'\w!?=~?"([^"]*)"', alert.expr)} <= known


@each_alert
def test_runbook_has_its_sections_and_names_commands_that_there_are(alert: Alert) -> None:
    text = (RUNBOOKS / f"{alert.name}.md").read_text(encoding="utf-8")
    places = [text.find(f"\n{section}\n") for section in SECTIONS]

    assert text.startswith(f"# {alert.name}\n")
    assert -1 not in places
    assert places == sorted(places)
    _, _, diagnosis = text.partition("## Diagnosis\n")
    assert "$ sema-maintenance " in diagnosis or "$ curl " in diagnosis
    for words in re.findall(r"sema-maintenance ([a-z][^`\n]*)", text):
        assert understood(words.split()), words


def understood(words: list[str]) -> bool:
    """Whether there is such a command, with these options."""
    name, *rest = words
    if name not in _TARGETS:
        return name in PLANNED
    module, _, attribute = _TARGETS[name].partition(":")
    command = getattr(importlib.import_module(module), attribute)
    while isinstance(command, click.Group):
        inner = command.commands.get(rest.pop(0)) if rest else None
        if inner is None:
            return False
        command = inner
    options = {option for parameter in command.params for option in parameter.opts}
    return {word for word in rest if word.startswith("--")} <= options


# Commands of the contract that come with a later change.
PLANNED = ("plan", "apply", "explain")


def test_every_runbook_belongs_to_an_alert_and_stands_in_the_list() -> None:
    pages = {page.stem for page in RUNBOOKS.glob("*.md")} - {"README"}
    listed = re.findall(r"\[(\w+)\]\((\w+)\.md\)", (RUNBOOKS / "README.md").read_text("utf-8"))

    assert pages == {alert.name for alert in ALERTS}
    assert {*listed} == {(page, page) for page in pages}


@each_alert
def test_promtool_sees_it_fire_and_not_fire(alert: Alert) -> None:
    """Each on its own, with every label and every word of what is sent."""
    cases = CASES / f"{alert.name}.yaml"
    text = cases.read_text(encoding="utf-8")
    tests = re.split(r"^  - name: ", text, flags=re.MULTILINE)[1:]
    firing = [test for test in tests if test.startswith("fires")]
    quiet = [test for test in tests if test.startswith("does not fire")]

    assert firing
    assert quiet
    assert len(firing) + len(quiet) == len(tests)
    assert os.path.relpath(RULES, CASES) in text, "the very file that is shipped"
    assert {*re.findall(r"alertname: (\w+)", text)} == {alert.name}
    assert all(test.count("exp_annotations") == test.count("exp_labels") > 0 for test in firing)
    assert all("exp_labels" not in test and "exp_alerts: []" in test for test in quiet)
    promtool("test", "rules", cases)


def test_no_case_is_left_without_an_alert() -> None:
    assert {case.stem for case in CASES.iterdir()} == {alert.name for alert in ALERTS}


def test_promtool_has_nothing_to_say_of_the_file() -> None:
    promtool("check", "rules", "--lint-fatal", RULES)


def test_shortening_changes_nothing_but_how_long_an_alert_waits() -> None:
    whole = RULES.read_text(encoding="utf-8").splitlines()
    short = shortened(RULES.read_text(encoding="utf-8"), "2s").splitlines()

    changed = [(a, b) for a, b in zip(whole, short, strict=True) if a != b]

    assert {b for _, b in changed} == {"        for: 2s"}
    assert all(re.fullmatch(r"        for: \d+[mhd]", a) for a, _ in changed)
    assert len(changed) == sum(line.startswith("        for: ") for line in whole) > 0
