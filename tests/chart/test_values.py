"""Values, schema, reference and settings cannot drift apart, and every value does something."""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import yaml

from config.durations import parse_duration
from config.settings import Settings, load_settings
from deploy.tools import chart_docs
from tests.chart.effects import EFFECTS, Effect, variable
from tests.chart.rendering import CHART, MINIMAL, Helm, Object, Rendered, with_values
from worker.context import GRACE

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DESCRIBED = {value.path for value in chart_docs.values()}
LEAVES = set(chart_docs.leaves(VALUES, DESCRIBED))
# In the schema alone: a parent chart may switch this one on and off by it.
PARENTS = {("enabled",)}
# Set by values with names of their own, or of no use in a pod.
ELSEWHERE = {
    *("database_url", "broker_url", "broker_user", "broker_password"),
    *("policy_file", "http_address", "release_token_file", "data_dir"),
}
BATCHES = sorted({effect.batch for effect in EFFECTS})


def in_schema(node: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where the schema has values: whatever is no closed object."""
    for key, inner in node.get("properties", {}).items():
        path = (*above, key)
        name = inner.get("$ref", "").rpartition("/")[2]
        resolved = SCHEMA["definitions"][name] if name else inner
        # WHY not a probe: it is one value, whose members are those of Kubernetes.
        if "properties" in resolved and name != "probe":
            yield from in_schema(resolved, path)
        else:
            yield path


def test_values_and_schema_name_the_same() -> None:
    assert set(in_schema(SCHEMA)) - PARENTS == LEAVES


def test_every_value_is_described() -> None:
    assert set() == LEAVES - DESCRIBED


def test_reference_and_descriptions_are_made_from_the_values() -> None:
    ended = subprocess.run(
        [sys.executable, chart_docs.__file__, "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")


def test_every_setting_of_the_worker_is_a_value() -> None:
    """Each under its own name, or by a value that stands for it."""
    named = {variable(key).removeprefix("MAINT_").lower() for key in VALUES["config"]}

    assert named == set(Settings.model_fields) - ELSEWHERE


def test_every_value_has_an_effect_to_look_for() -> None:
    assert {".".join(path) for path in LEAVES} == {effect.path for effect in EFFECTS}


_SECRET = {"existingSecret": "sec"}
# What the values of a batch need beside them.
_BESIDE: dict[int, dict[str, Any]] = {
    1: {},
    2: {
        "database": _SECRET,
        "broker": {"host": "b", **_SECRET},
        "policy": {"key": "p.toml"},
        "migration": {"database": _SECRET},
        "beat": {"replicas": 2, "podDisruptionBudget": {"enabled": True}},
    },
    3: {"database": _SECRET, "broker": {**_SECRET}},
    4: {**MINIMAL, "metrics": {"prometheusRule": {"enabled": True}}},
}


@pytest.fixture(scope="session", params=BATCHES)
def batch(request: pytest.FixtureRequest, helm: Helm) -> tuple[int, Rendered]:
    """The chart with every value of one batch changed."""
    number: int = request.param
    changes = [(each.path, each.value) for each in EFFECTS if each.batch == number]
    beside = json.loads(json.dumps(_BESIDE[number]))
    return number, helm.template(with_values(beside, *changes))


def test_every_value_has_its_effect(batch: tuple[int, Rendered], minimal: Rendered) -> None:
    number, changed = batch
    in_vain = []
    for effect in EFFECTS:
        if effect.batch == number:
            before, after = _text(minimal, effect.place), _text(changed, effect.place)
            if effect.place.startswith("-"):
                seen = bool(before) and not after
            elif effect.seen.startswith("-"):
                seen = bool(after) and effect.seen[1:] not in after
            else:
                seen = effect.seen not in before and effect.seen in after
            if not seen:
                in_vain.append(effect)

    assert in_vain == []


def _text(rendered: Rendered, place: str) -> str:
    kind, _, suffix = place.removeprefix("-").partition("/")
    found: list[Object] = rendered.all(kind, suffix)
    return "\n".join(json.dumps(each, sort_keys=True) for each in found)


def test_the_marks_of_a_batch_are_its_own() -> None:
    """So that one value cannot stand in for another."""
    marks = [(each.batch, each.place, each.seen) for each in EFFECTS if each.seen]

    assert len(set(marks)) == len(marks)
    assert isinstance(EFFECTS[0], Effect)


def test_what_the_workers_are_given_is_what_their_settings_take(helm: Helm) -> None:
    """The variables of the full example, with a password that no address could hold."""
    rendered = helm.template(CHART / "ci" / "full-values.yaml")
    env = {
        name: value if isinstance(value, str) else "p@s/s:%w"
        for name, value in rendered.env("Deployment", "worker").items()
    }

    settings = load_settings(env)

    assert settings.broker.get_secret_value() == (
        "amqps://worker:p%40s%2Fs%3A%25w@rabbit.example:5671/%2Fsema"
    )
    assert env["MAINT_DATABASE_URL"] == "postgresql://"
    assert env["PGPASSWORD"] == "p@s/s:%w"
    assert settings.http_address.host == "0.0.0.0"
    assert settings.max_rows_per_second == 1_000_000
    assert not any("$(" in value for value in env.values())


@pytest.mark.parametrize("budget", [None, "90s", "1h30m", "1.5s", "250ms"])
def test_the_grace_is_a_parts_budget_and_what_others_wait_for_it(
    helm: Helm, budget: str | None
) -> None:
    values = with_values(MINIMAL, ("config.jobBudget", budget))
    spec = helm.template(values).one("Deployment", "worker")["spec"]["template"]["spec"]

    expected = (parse_duration(budget) if budget else Settings().job_budget) + GRACE
    assert spec["terminationGracePeriodSeconds"] == -(-expected // timedelta(seconds=1))
