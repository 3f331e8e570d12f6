"""Every object is one that Kubernetes and the Prometheus operator take."""

import functools
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import kubernetes_validate.utils
import pytest

from tests.chart.rendering import CHART, CI, Helm, Rendered

KUBERNETES = [f"1.{minor}" for minor in range(29, 38)]
# Extracted from the operator's own definitions; the file says from which.
OPERATOR = json.loads((Path(__file__).parent / "operator.json").read_text())["schemas"]


def strict(schema: Any) -> Any:
    """The schema with unknown members refused, which a cluster would drop without a word."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if "properties" in schema:
        made["properties"] = {key: strict(each) for key, each in schema["properties"].items()}
        if "additionalProperties" not in schema and "apiVersion" not in schema["properties"]:
            made["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
    return made


# The minimal values give nothing that the full ones do not.
@pytest.mark.parametrize("values", CI[:1] + CI[2:], ids=lambda path: path.stem)
def test_every_object_is_valid_in_each_supported_kubernetes(
    helm: Helm, values: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its strictest reading: an unknown member is an error."""
    # WHY: the library reads megabytes anew for each object.
    read = functools.lru_cache(maxsize=32)(kubernetes_validate.utils.schema_contents)
    monkeypatch.setattr(kubernetes_validate.utils, "schema_contents", read)
    # The CronJobs differ by a word of their command, which is no matter of schema.
    objects = [
        each
        for each in helm.template(values).objects
        if "monitoring.coreos.com" not in each["apiVersion"]
        and (each["kind"] != "CronJob" or each["metadata"]["name"].endswith("-reap"))
    ]
    assert {"Deployment", "CronJob", "Job"} <= {each["kind"] for each in objects}
    for version in KUBERNETES:
        for each in objects:
            kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("version", [KUBERNETES[0], KUBERNETES[-1]])
def test_the_chart_takes_the_first_and_the_last_of_them(helm: Helm, version: str) -> None:
    """What it renders does not depend on the cluster."""
    asked = helm.template(CI[0], "--kube-version", f"{version}.0-gke.100")

    assert asked.text == helm.template(CI[0]).text


def test_an_older_kubernetes_is_refused(helm: Helm) -> None:
    ended = helm.run("template", str(CHART), "-f", str(CI[0]), "--kube-version", "1.28.9")

    assert ended.returncode != 0
    assert "chart requires kubeVersion: >=1.29.0-0" in ended.stderr


def test_the_operators_objects_are_valid(helm: Helm) -> None:
    """By the operator's own models."""
    rendered = helm.template(CHART / "ci" / "full-values.yaml")
    for kind, schema in OPERATOR.items():
        jsonschema.Draft202012Validator(strict(schema)).validate(rendered.one(kind))


def test_the_operators_models_see_a_wrong_member(helm: Helm) -> None:
    """So that the test above can fail."""
    monitor = helm.template(CHART / "ci" / "full-values.yaml").one("PodMonitor")
    monitor = json.loads(json.dumps(monitor))
    monitor["spec"]["podMetricsEndpoints"][0]["honourLabels"] = True

    with pytest.raises(jsonschema.ValidationError, match="honourLabels"):
        jsonschema.Draft202012Validator(strict(OPERATOR["PodMonitor"])).validate(monitor)


@pytest.mark.parametrize("values", CI, ids=lambda path: path.stem)
def test_helm_3_renders_the_same(helm: Helm, helm3: Helm, values: Path) -> None:
    """Object for object."""

    def by_name(rendered: Rendered) -> dict[tuple[str, str], Any]:
        return {(each["kind"], each["metadata"]["name"]): each for each in rendered.objects}

    assert by_name(helm3.template(values)) == by_name(helm.template(values))


@pytest.mark.parametrize("values", [None, *CI], ids=lambda path: path.stem if path else "none")
def test_lint_finds_nothing(helm: Helm, values: Path | None) -> None:
    given = [] if values is None else ["-f", str(values)]
    ended = helm.run("lint", "--strict", str(CHART), *given)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert not re.search(r"\[(WARNING|ERROR)\]", ended.stdout)


@pytest.mark.parametrize("values", CI, ids=lambda path: path.stem)
def test_names_and_labels_fit(helm: Helm, values: Path) -> None:
    """Also those of the longest release, and none of them meets another."""
    for release in ("rel", "r" * 53):
        objects = helm.template(values, release=release).objects
        names = [(each["kind"], each["metadata"]["name"]) for each in objects]
        assert len(set(names)) == len(names)
        for kind, name in names:
            assert len(name) <= (52 if kind == "CronJob" else 63)
            assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name)
        for each in objects:
            for value in each["metadata"].get("labels", {}).values():
                assert re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?", value)


def test_long_names_that_begin_alike_stay_two(helm: Helm) -> None:
    """Cutting them would give both releases one name."""
    values = CHART / "ci" / "minimal-values.yaml"
    names = [
        {
            (each["kind"], each["metadata"]["name"])
            for each in helm.template(values, release="a" * 45 + end).objects
        }
        for end in ("-one", "-two")
    ]

    assert not names[0] & names[1]
