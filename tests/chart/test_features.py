"""What the chart makes, each feature on and off."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.policy import parse_policy
from config.settings import load_settings
from tests.chart.rendering import CHART, CI, MINIMAL, Helm, Rendered, with_values
from tests.chart.test_values import VALUES
from worker.cli.commands import sema_maintenance

RULES = CHART / "files" / "rules"
# Maps without which there is nothing to make.
NEEDED = ("database", "broker", "image")
DASHBOARDS = CHART / "files" / "dashboards"


@pytest.mark.parametrize("values", CI, ids=lambda path: path.stem)
def test_every_pod_meets_the_restricted_standard(helm: Helm, values: Path) -> None:
    """And more: a read-only root, no token, and no variables of other services."""
    for name, pod in helm.template(values).pods():
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["enableServiceLinks"] is False, name
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            if container["name"] != "proxy":
                assert context["readOnlyRootFilesystem"] is True, name
                assert container["volumeMounts"][0] == {"name": "tmp", "mountPath": "/tmp"}, name


def test_selectors_find_the_pods_that_are_meant(helm: Helm) -> None:
    """And stay the same from release to release, whatever labels are added."""
    rendered = helm.template(CHART / "ci" / "full-values.yaml")
    for component in ("worker", "beat"):
        deployment = rendered.one("Deployment", f"-{component}")
        selector = deployment["spec"]["selector"]["matchLabels"]
        assert selector == {
            "app.kubernetes.io/name": "caretaker",
            "app.kubernetes.io/instance": "rel",
            "app.kubernetes.io/component": component,
        }
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert selector.items() <= labels.items()
        assert rendered.one("PodDisruptionBudget", component)["spec"]["selector"] == {
            "matchLabels": selector
        }
        [spread] = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
        assert spread["labelSelector"] == {"matchLabels": selector}
    every = {"app.kubernetes.io/name": "caretaker", "app.kubernetes.io/instance": "rel"}
    assert rendered.one("NetworkPolicy")["spec"]["podSelector"] == {"matchLabels": every}
    monitored = rendered.one("PodMonitor")["spec"]
    assert monitored["selector"]["matchLabels"] == every
    assert monitored["podMetricsEndpoints"][0]["honorLabels"] is True


def test_a_label_of_our_own_cannot_be_overwritten(helm: Helm) -> None:
    """It would take the pods from their Deployment."""
    values = with_values(MINIMAL, ("podLabels", {"app.kubernetes.io/component": "x", "n": 1e6}))
    labels = helm.template(values).one("Deployment", "worker")["spec"]["template"]["metadata"]

    assert labels["labels"]["app.kubernetes.io/component"] == "worker"
    assert labels["labels"]["n"] == "1000000"


def test_the_processes_are_started_as_the_readme_says(minimal: Rendered) -> None:
    for process in ("worker", "beat"):
        command = minimal.container("Deployment", process)["command"]
        assert command == ["celery", "-A", "worker", process]
    assert minimal.one("Deployment", "beat")["spec"]["strategy"] == {"type": "Recreate"}
    assert minimal.all("HorizontalPodAutoscaler") == []


def test_probes_ask_the_process_itself(minimal: Rendered) -> None:
    for component in ("worker", "beat"):
        container = minimal.container("Deployment", component)
        assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
        assert container["ports"][0]["containerPort"] == 9464
    # Every container has one name: it is a label of series that are the same from each pod.
    assert {pod["spec"]["containers"][0]["name"] for _, pod in minimal.pods()} == {
        "sema-maintenance"
    }


def test_a_probe_can_be_left_out(helm: Helm) -> None:
    values = with_values(MINIMAL, ("probes.startup", None))

    assert "startupProbe" not in helm.template(values).container("Deployment", "worker")


def test_ipv6_addresses_are_written_as_each_reader_takes_them(helm: Helm) -> None:
    for host in ("fd00::1", "[fd00::1]"):
        given = dict.fromkeys(("database.host", "broker.host", "http.host"), host)
        env = helm.template(with_values(MINIMAL, *given.items())).env("Deployment", "worker")

        assert env["PGHOST"] == "fd00::1"
        assert env["MAINT_BROKER_URL"] == "redis://[fd00::1]:6379"
        assert str(load_settings(env).http_address) == "[fd00::1]:9464"
    everywhere = helm.template(with_values(MINIMAL, ("http.host", "::")))
    assert everywhere.env("Deployment", "beat")["MAINT_HTTP_ADDRESS"] == "[::]:9464"


def test_a_platform_may_assign_user_and_groups(helm: Helm) -> None:
    values = with_values(MINIMAL, ("openshift.adaptSecurityContext", True))
    for name, pod in helm.template(values).pods():
        context = pod["spec"]["securityContext"]
        assert context == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}, name


def test_the_release_token_is_mounted_where_transcripts_are_released(helm: Helm) -> None:
    """And where `doctor` looks at it; not in the container that waits, and in no other pod."""
    rendered = helm.template(
        with_values(
            MINIMAL,
            ("config", {"releaseBackend": "http", "releaseUrl": "https://h/{scope}/{session_id}"}),
            ("release.existingSecret", "token-secret"),
        )
    )
    holders = {name for name, pod in rendered.pods() if "token-secret" in json.dumps(pod)}

    assert holders == {
        name
        for name, _ in rendered.pods()
        if name.endswith("-worker") or name.startswith(("CronJob/", "Pod/"))
    }
    worker = rendered.one("Deployment", "worker")["spec"]["template"]["spec"]
    assert "release-token" not in json.dumps(worker["initContainers"])


def test_the_pod_of_helm_test_keeps_its_log(minimal: Rendered) -> None:
    annotations = minimal.one("Pod")["metadata"]["annotations"]

    assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation"


def test_each_job_has_a_cronjob_that_stays_suspended(helm: Helm, minimal: Rendered) -> None:
    """Its command is one that the command line takes."""
    commands = {}
    for each in minimal.all("CronJob"):
        assert each["spec"]["suspend"] is True
        [container] = each["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        program, command, *arguments = container["command"]
        commands[command] = arguments
        assert program == "sema-maintenance"
        known = {
            option
            for each in sema_maintenance.get_command(None, command).params  # type: ignore[arg-type, union-attr]
            for option in each.opts
        }
        assert set(arguments) <= known
    assert commands == VALUES["jobs"]["args"]
    without = helm.template(CHART / "ci" / "urls-values.yaml")
    assert without.all("CronJob", "audit-memory") == []


def test_the_server_s_variables_reach_who_audits_and_overrule_nothing(helm: Helm) -> None:
    rendered = helm.template(CHART / "ci" / "full-values.yaml")
    for kind, suffix in (("Deployment", "worker"), ("CronJob", "audit-memory")):
        sources = rendered.container(kind, suffix)["envFrom"]
        assert sources[0] == {"configMapRef": {"name": "sema-server"}}
    assert rendered.container("Job", "")["envFrom"] == [
        {"secretRef": {"name": "more", "optional": True}}
    ]


def test_the_policy_is_mounted_and_a_new_one_restarts_the_pods(helm: Helm) -> None:
    def annotations(content: str) -> Any:
        rendered = helm.template(with_values(MINIMAL, ("policy.content", content)))
        assert rendered.one("ConfigMap", "policy")["data"] == {"policy.toml": content}
        assert rendered.env("Deployment", "beat")["MAINT_POLICY_FILE"].endswith("/policy.toml")
        return rendered.one("Deployment", "beat")["spec"]["template"]["metadata"]["annotations"]

    assert annotations("# {{ one }}\n") != annotations("  # 'two': \"x\"\n")


def test_the_examples_are_taken(helm: Helm) -> None:
    """Values of the README by the chart, their policies by the worker."""
    [example] = re.findall(r"```yaml\n(.*?)```", (CHART / "README.md").read_text(), re.DOTALL)
    full = (CHART / "ci" / "full-values.yaml").read_text()
    helm.template(yaml.safe_load(example))

    for text in (example, full):
        policy = parse_policy(yaml.safe_load(text)["policy"]["content"], "values")
        assert policy.for_scope("tenant/acme").max_age is not None


def test_without_a_policy_none_is_named(minimal: Rendered) -> None:
    assert "MAINT_POLICY_FILE" not in minimal.env("Deployment", "worker")
    assert minimal.all("ConfigMap") == []


def test_rules_and_dashboards_are_the_files(helm: Helm) -> None:
    """Nothing in them is taken for a template."""
    on = ("metrics.prometheusRule.enabled", True), ("metrics.dashboards.enabled", True)
    rendered = helm.template(with_values(MINIMAL, *on))
    groups = [
        group
        for file in sorted(RULES.glob("*.yaml"))
        for group in yaml.safe_load(file.read_text())["groups"]
    ]

    assert rendered.one("PrometheusRule")["spec"]["groups"] == groups
    assert {
        name: json.loads(text)
        for name, text in rendered.one("ConfigMap", "dashboards")["data"].items()
    } == {file.name: json.loads(file.read_text()) for file in DASHBOARDS.glob("*.json")}


def test_the_network_policy_lets_out_to_what_is_used(helm: Helm) -> None:
    """Names, database, broker, and transcripts elsewhere; nothing else."""

    def ports(*more: tuple[str, Any]) -> list[list[int]]:
        values = with_values(MINIMAL, ("networkPolicy.enabled", True), *more)
        spec = helm.template(values).one("NetworkPolicy")["spec"]
        assert [each["ports"][0]["port"] for each in spec["ingress"]] == [9464]
        return [[port["port"] for port in rule["ports"]] for rule in spec["egress"]]

    assert ports() == [[53, 53], [5432], [6379]]
    assert ports(("migration.database.port", 6432))[1] == [5432, 6432]
    assert ports(("migration.database.port", "5432"))[1] == [5432]
    url = "http://[fd00::1]/{scope}/{session_id}"
    release = ("config", {"releaseBackend": "http", "releaseUrl": url})
    assert ports(("broker.scheme", "amqps"), release) == [[53, 53], [5432], [5671], [80]]


def test_it_is_a_dependency_of_another_chart(helm: Helm, tmp_path: Path) -> None:
    """Which puts into `global` what it likes, and switches it off by a condition."""
    parent = tmp_path / "parent"
    (parent / "charts").mkdir(parents=True)
    shutil.copytree(CHART, parent / "charts" / "sema-maintenance")
    condition = {
        "name": "sema-maintenance",
        "version": "*",
        "condition": "sema-maintenance.enabled",
    }
    metadata = {
        "apiVersion": "v2",
        "name": "parent",
        "version": "1.0.0",
        "dependencies": [condition],
    }
    (parent / "Chart.yaml").write_text(json.dumps(metadata))
    shared = {"imageRegistry": "r.example", "anything": {"else": [1]}, "storageClass": "x"}

    # A parent's null takes no default away with Helm 4, and this does.
    adapt = {"openshift": {"adaptSecurityContext": True}}
    values = {"global": shared, "sema-maintenance": {"enabled": True, **MINIMAL, **adapt}}
    on = helm.template(values, chart=parent)
    values["sema-maintenance"] = {"enabled": False}
    off = helm.template(values, chart=parent)

    image = on.container("Deployment", "worker")["image"]
    assert image == "r.example/sema-maintenance:0.2.0"
    assert "runAsUser" not in on.text
    assert off.objects == []


def _optional() -> list[str]:
    return [key for key in VALUES if key not in NEEDED]


def test_any_value_may_be_null(helm: Helm) -> None:
    """A map or a list that is null is empty; nobody meets an error of the template's language."""
    nulls = helm.template(with_values(MINIMAL, *((key, None) for key in _optional())))
    inner = with_values(
        MINIMAL,
        *(
            (f"{key}.{name}", None)
            for key in _optional()
            for name in (VALUES[key] if isinstance(VALUES[key], dict) else ())
        ),
    )

    assert nulls.one("Deployment", "worker")["spec"]["replicas"] == 2
    assert helm.template(inner).one("Deployment", "worker")["spec"]["replicas"] == 2
    needed = {"database.host", "database.name", "broker.host", "broker.scheme", "image.repository"}
    paths = [f"{key}.{name}" for key in NEEDED for name in VALUES[key]]
    least = with_values(MINIMAL, *((path, None) for path in paths if path not in needed))
    assert helm.template(least).env("Deployment", "worker")["PGHOST"] == "db.example"


def test_numbers_may_be_text_and_large(helm: Helm) -> None:
    """As `--set-string` gives them, and as Helm reads large ones."""
    given = {
        "worker.replicas": "3",
        "http.port": "8080",
        "config.maxRowsPerSecond": 12_000_000,
        "probes.startup.failureThreshold": "90",
    }
    rendered = helm.template(with_values(MINIMAL, *given.items()))

    assert rendered.one("Deployment", "worker")["spec"]["replicas"] == 3
    startup = rendered.container("Deployment", "worker")["startupProbe"]
    assert startup["failureThreshold"] == 90
    assert rendered.container("Deployment", "worker")["ports"][0]["containerPort"] == 8080
    assert rendered.env("Deployment", "worker")["MAINT_MAX_ROWS_PER_SECOND"] == "12000000"
