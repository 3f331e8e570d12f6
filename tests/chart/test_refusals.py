"""Values that cannot work are refused with a sentence that names them, before anything is made."""

from typing import Any

import pytest

from tests.chart.rendering import MINIMAL, Helm, Refused, with_values

# What is set beside the minimal values, and what is said.
CASES: list[tuple[dict[str, Any], str]] = [
    ({"database.host": ""}, "database.host is not set: name the host of the ledger's Postgres"),
    ({"database.name": None}, "database.name is not set"),
    ({"broker.host": ""}, "broker.host is not set"),
    ({"broker.host": "u:p@h"}, "broker.host holds a user or a password"),
    (
        {"database.keys.user": "user"},
        "database.keys.user names a key and database.existingSecret no Secret",
    ),
    ({"broker.keys.user": "user"}, "broker.keys.user names a key and broker.existingSecret no"),
    (
        {"database.existingSecret": "s", "database.keys.url": "uri"},
        "database.keys.url holds the whole address, and the host is set as well",
    ),
    (
        {"broker.existingSecret": "s", "broker.keys.url": "uri"},
        "broker.keys.url holds the whole address, and broker.host is set as well",
    ),
    (
        {
            "database": {"existingSecret": "s", "keys": {"url": "uri"}},
            "migration.database.existingSecret": "o",
        },
        "migration.database needs host, user and password on their own",
    ),
    (
        {"migration.database.keys.user": "user"},
        "migration.database.keys.user names a key and migration.database.existingSecret no Secret",
    ),
    (
        {"policy.content": "a", "policy.existingConfigMap": "b"},
        "policy.content and policy.existingConfigMap are both set",
    ),
    ({"config.releaseBackend": "http"}, "config.releaseUrl says nothing of where to"),
    ({"config.releaseUrl": "https://h/{scope}"}, "config.releaseUrl has no use with"),
    ({"release.existingSecret": "s"}, "release.existingSecret has no use with"),
    (
        {"worker.autoscaling": {"enabled": True, "minReplicas": 9}},
        "worker.autoscaling.minReplicas is more than worker.autoscaling.maxReplicas",
    ),
    (
        {"worker.autoscaling": {"enabled": True, "targetCPUUtilizationPercentage": None}},
        "worker.autoscaling has nothing to go by",
    ),
    (
        {"worker.podDisruptionBudget.maxUnavailable": None},
        "worker.podDisruptionBudget says neither maxUnavailable nor minAvailable",
    ),
    ({"extraEnv": [{"name": "PGHOST", "value": "x"}]}, "extraEnv sets PGHOST, which has a value"),
    ({"extraEnv": [{"name": "MAINT_JOB_BUDGET"}]}, "extraEnv sets MAINT_JOB_BUDGET, which has"),
    ({"extraEnv": [{"name": "A"}, {"name": "A"}]}, "extraEnv sets A twice"),
    (
        {
            "networkPolicy.enabled": True,
            "database.existingSecret": "s",
            "database.keys.port": "port",
        },
        "networkPolicy cannot know a port that is in a Secret: set networkPolicy.databasePorts",
    ),
    # The schema's own.
    ({"worker.replica": 3}, "at '/worker': additional properties 'replica' not allowed"),
    ({"databse": {}}, "additional properties 'databse' not allowed"),
    ({"database.password": "x"}, "at '/database': additional properties 'password' not allowed"),
    ({"config.jobBudget": "5"}, "at '/config/jobBudget'"),
    ({"config.jobBudget": 300}, "at '/config/jobBudget': got number, want null or string"),
    ({"config.workerConcurrency": 65}, "at '/config/workerConcurrency'"),
    ({"config.releaseBackend": "s3"}, "at '/config/releaseBackend': value must be one of"),
    ({"broker.scheme": "memory"}, "at '/broker/scheme': value must be one of 'redis'"),
    ({"image.digest": "sha256:abc"}, "at '/image/digest'"),
    ({"image.tag": 1.1}, "at '/image/tag': got number, want null or string"),
    ({"http.port": 70000}, "at '/http/port'"),
    ({"worker.replicas": -1}, "at '/worker/replicas'"),
    ({"beat.enabled": "yes"}, "at '/beat/enabled': got string, want null or boolean"),
    ({"fullnameOverride": "Not_A_Name"}, "at '/fullnameOverride'"),
    ({"probes.liveness.exec": {}}, "at '/probes/liveness/exec'"),
    ({"jobs.args.sweep": []}, "additional properties 'sweep' not allowed"),
]


@pytest.mark.parametrize(("values", "said"), CASES, ids=[said[:50] for _, said in CASES])
def test_refused_with_a_sentence(helm: Helm, values: dict[str, Any], said: str) -> None:
    base = {} if "database" in values else MINIMAL
    with pytest.raises(Refused) as refused:
        helm.template(with_values(base, *values.items()))

    assert said in str(refused.value)


def test_all_that_is_wrong_is_said_at_once(helm: Helm) -> None:
    with pytest.raises(Refused) as refused:
        helm.template({})

    assert str(refused.value).count("\n- ") == 3


def test_helm_3_refuses_as_well(helm3: Helm) -> None:
    with pytest.raises(Refused, match="Additional property replica is not allowed"):
        helm3.template(with_values(MINIMAL, ("worker.replica", 3)))
    with pytest.raises(Refused, match=r"database\.host is not set"):
        helm3.template({})
