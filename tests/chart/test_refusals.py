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
    ({"database.host": "postgresql://h/d"}, "database.host holds a whole address"),
    ({"database.host": "a,b:6432"}, "database.host holds a port: name the host alone"),
    ({"migration.database.host": "[::1]:5432"}, "and the port in migration.database.port"),
    ({"broker.host": "redis.example:6379"}, "broker.host holds a port"),
    ({"broker.host": "redis/0"}, "broker.host is no host: write a name or an IP address"),
    ({"broker.host": "a:b:x"}, "broker.host is no host"),
    ({"http.host": "0.0.0.0:9464"}, "http.host holds a port: name the host alone"),
    ({"broker.query": "a=b&password=x"}, "broker.query holds a password: put it into a Secret"),
    (
        {"config": {"releaseBackend": "http", "releaseUrl": "https://u:p@h/{scope}"}},
        "config.releaseUrl holds a password: put it into a Secret, named in release.existingSecret",
    ),
    ({"image": None}, "image.repository is not set: name the repository of the worker's image"),
    ({"image.repository": None}, "image.repository is not set"),
    ({"enabled": False}, "enabled is for a parent chart"),
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
    *(
        (
            {
                "database": {"existingSecret": "s", "keys": {"url": "uri"}, key: value},
                "broker": MINIMAL["broker"],
            },
            f"database.keys.url holds the whole address, and database.{key} is set as well",
        )
        for key, value in (("sslMode", "require"), ("port", 6432))
    ),
    *(
        (
            {
                "database": MINIMAL["database"],
                "broker": {"existingSecret": "s", "keys": {"url": "uri"}, key: value},
            },
            f"broker.keys.url holds the whole address, and broker.{key} is set as well",
        )
        for key, value in (("scheme", "rediss"), ("port", 1), ("name", 0), ("query", "a=b"))
    ),
    (
        {
            "database": {"existingSecret": "s", "keys": {"url": "uri", "port": "port"}},
            "broker": {"existingSecret": "s", "keys": {"url": "uri", "user": "user"}},
        },
        "and database.keys.port is set as well",
    ),
    (
        {
            "database": MINIMAL["database"],
            "broker": {"existingSecret": "s", "keys": {"url": "uri", "user": "user"}},
        },
        "and broker.keys.user is set as well",
    ),
    (
        {
            "database.existingSecret": "s",
            "database.keys.user": "user",
            "migration.database.existingSecret": "o",
        },
        "migration.database.existingSecret holds a password, and nothing says whose",
    ),
    (
        {"migration.hooks": True, "migration.revision": "2"},
        "migration.revision has no use with migration.hooks",
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
    *(
        (
            {
                f"{component}.replicas": replicas,
                f"{component}.podDisruptionBudget": {"enabled": True, key: value},
            },
            f"{component}.podDisruptionBudget lets no pod go",
        )
        for component, replicas, key, value in (
            ("worker", 2, "minAvailable", 2),
            ("worker", 2, "minAvailable", "51%"),
            ("worker", "3", "maxUnavailable", "0%"),
            ("beat", 1, "minAvailable", "1"),
        )
    ),
    (
        {
            "worker.autoscaling": {"enabled": True},
            "worker.resources": {"requests": {"cpu": None}},
        },
        "worker.autoscaling.targetCPUUtilizationPercentage is a share of what is requested",
    ),
    (
        {
            "metrics.prometheusRule": {
                "enabled": True,
                "disabledAlerts": ["SemaMaintenanceReapSpike", "ReapSpike"],
            }
        },
        "metrics.prometheusRule.disabledAlerts names ReapSpike, which is no alert of this chart",
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
    ({"probes.liveness.failureThreshold": "many"}, "at '/probes/liveness/failureThreshold'"),
    ({"probes.liveness.failureTreshold": 3}, "at '/probes/liveness': additional properties"),
    ({"migration.revision": "Not A Name"}, "at '/migration/revision'"),
    ({"probes.liveness.exec": {}}, "at '/probes/liveness/exec'"),
    ({"jobs.args.sweep": []}, "additional properties 'sweep' not allowed"),
]


@pytest.mark.parametrize(("values", "said"), CASES, ids=[said[:50] for _, said in CASES])
def test_refused_with_a_sentence(helm: Helm, values: dict[str, Any], said: str) -> None:
    base = {} if "database" in values else MINIMAL
    with pytest.raises(Refused) as refused:
        helm.template(with_values(base, *values.items()))

    assert said in str(refused.value)


@pytest.mark.parametrize("path", ["database.host", "broker.host", "config.releaseUrl"])
def test_a_refusal_does_not_repeat_a_password(helm: Helm, path: str) -> None:
    url = "https://user:s3cret-word@host.example/{scope}"
    with pytest.raises(Refused) as refused:
        helm.template(with_values(MINIMAL, ("config.releaseBackend", "http"), (path, url)))

    assert f"{path} holds a" in str(refused.value)
    assert "s3cret-word" not in str(refused.value)


def test_all_that_is_wrong_is_said_at_once(helm: Helm) -> None:
    with pytest.raises(Refused) as refused:
        helm.template({})

    assert str(refused.value).count("\n- ") == 3


def test_helm_3_refuses_as_well(helm3: Helm) -> None:
    with pytest.raises(Refused, match="Additional property replica is not allowed"):
        helm3.template(with_values(MINIMAL, ("worker.replica", 3)))
    with pytest.raises(Refused, match=r"database\.host is not set"):
        helm3.template({})
