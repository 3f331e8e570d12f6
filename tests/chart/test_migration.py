"""How the tables come to their release, as whose role, and what the notes say of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chart.rendering import CHART, MINIMAL, Helm, Rendered, with_values


def test_migration_is_a_job_named_after_what_it_runs(helm: Helm, minimal: Rendered) -> None:
    """A Job's pod cannot change: what is the same keeps its name, and what is not has another."""
    again = helm.template(with_values(MINIMAL, ("worker.replicas", 4)))
    other = helm.template(with_values(MINIMAL, ("image.tag", "0.3.0")))
    name = minimal.one("Job")["metadata"]["name"]

    assert "annotations" not in minimal.one("Job")["metadata"]
    assert again.one("Job")["metadata"]["name"] == name
    assert other.one("Job")["metadata"]["name"] != name


def test_another_revision_is_another_job_and_a_hook_has_one_name(helm: Helm) -> None:
    """A Job that failed is run again under a new name, or deleted by its name as the hook's is."""

    def name(**migration: Any) -> str:
        rendered = helm.template(with_values(MINIMAL, ("migration", migration)))
        return str(rendered.one("Job")["metadata"]["name"])

    assert len({name(), name(revision="a"), name(revision=0)}) == 3
    assert name(hooks=True) == name(hooks=True, indexes=True) == "rel-sema-maintenance-migrate"


def test_worker_and_beat_wait_for_the_schema(helm: Helm, minimal: Rendered) -> None:
    """In a container that has the last word; the migration itself waits for nobody."""
    for name, pod in minimal.pods():
        waiting = [each["command"] for each in pod["spec"].get("initContainers", [])]
        expected = [["sema-maintenance", "migrate", "--wait", "10m"]]
        assert waiting == (expected if name.startswith("Deployment") else []), name
    for off in ("", None):
        without = helm.template(with_values(MINIMAL, ("migration.wait", off)))
        assert not any("initContainers" in pod["spec"] for _, pod in without.pods())


def test_migration_by_hook_needs_nothing_that_the_chart_makes(helm: Helm) -> None:
    values = with_values(MINIMAL, ("migration.hooks", True), ("policy.content", "# none"))
    job = helm.template(values).one("Job")
    spec = job["spec"]["template"]["spec"]

    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert spec["serviceAccountName"] == "default"
    assert "configMap" not in json.dumps(spec)


def test_another_role_may_migrate(helm: Helm) -> None:
    rendered = helm.template(CHART / "ci" / "full-values.yaml")
    owner, worker = rendered.env("Job", ""), rendered.env("Deployment", "worker")

    assert owner["PGUSER"] == {"secretKeyRef": {"name": "sema-owner", "key": "user"}}
    assert owner["PGPASSWORD"] == {"secretKeyRef": {"name": "sema-owner", "key": "password"}}
    assert worker["PGUSER"] == {"secretKeyRef": {"name": "sema-app", "key": "user"}}
    assert owner["PGHOST"] == worker["PGHOST"]


def test_a_secret_of_the_owner_brings_or_is_told_its_user(helm: Helm) -> None:
    """Never the user of one Secret with the password of another."""
    values = with_values(
        MINIMAL,
        ("database.existingSecret", "app"),
        ("database.keys", {"user": "user"}),
        ("migration.database", {"existingSecret": "own", "user": "owner"}),
    )
    owner = helm.template(values).env("Job", "")

    assert owner["PGUSER"] == "owner"
    assert owner["PGPASSWORD"] == {"secretKeyRef": {"name": "own", "key": "password"}}


def notes(helm: Helm, folder: Path, *more: tuple[str, Any]) -> str:
    """What is said to who installs it."""
    file = folder / "values.json"
    file.write_text(json.dumps(with_values(MINIMAL, *more)))
    ended = helm.run("install", "rel", str(CHART), "-f", str(file), "--dry-run=client")
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.rpartition("NOTES:")[2]


def test_the_notes_say_what_is_missing(helm: Helm, tmp_path: Path) -> None:
    said = notes(helm, tmp_path)

    assert "NOTE: there is no policy, so nothing is deleted" in said
    assert "--from=cronjob/rel-sema-maintenance-reap" in said
    assert "test rel" in said
    assert "grants" not in said
    assert "terminationGracePeriodSeconds" not in said
    short = notes(helm, tmp_path, ("worker.terminationGracePeriodSeconds", 60))
    assert "terminationGracePeriodSeconds is 60, and a part may take 420 seconds" in short


@pytest.mark.parametrize("owner", [{"user": "owner"}, {"user": "owner", "existingSecret": "own"}])
def test_the_notes_name_commands_that_work_before_a_pod_is_ready(
    helm: Helm, tmp_path: Path, owner: dict[str, str]
) -> None:
    """Where another role migrates, the pods wait for what these print."""
    more = (
        ("migration.database", owner),
        ("database.user", "sema_worker"),
        ("config.ledgerSchema", "seen"),
    )
    said = notes(helm, tmp_path, *more)

    command = "sema-maintenance grants --role sema_worker"
    assert f"--container wait-for-schema -- {command}" in said
    assert "run grants --rm -i --quiet --restart=Never --image sema-maintenance:0.2.0" in said
    assert f"--env 'MAINT_LEDGER_SCHEMA=seen' --command -- {command}" in said
    assert "wait-for-schema" not in notes(helm, tmp_path, *more, ("migration.wait", ""))
