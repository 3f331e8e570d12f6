"""One other value for each value of the chart, and where in the objects it must then be seen."""

from typing import Any, NamedTuple


class Effect(NamedTuple):
    """Set `path` to `value`; then `seen` is in that object's JSON, and was not before.

    Those of one batch are set together: an effect is looked for by a mark that no other one leaves.
    """

    path: str
    value: Any
    place: str
    seen: str
    batch: int = 1


_PEERS = '{"podSelector": {"matchLabels": {"app": "%s"}}}'


def _peer(name: str) -> tuple[list[Any], str]:
    return [{"podSelector": {"matchLabels": {"app": name}}}], _PEERS % name


def _pods(component: str, place: str) -> list[Effect]:
    """What each component has for its own pods."""
    resources = {"requests": {"cpu": f"11{len(component)}m"}}
    return [
        Effect(f"{component}.resources", resources, place, f'"cpu": "11{len(component)}m"'),
        Effect(f"{component}.podLabels", {"l": f"{component}-l"}, place, f"{component}-l"),
        Effect(f"{component}.podAnnotations", {"a": f"{component}-a"}, place, f"{component}-a"),
        Effect(f"{component}.nodeSelector", {"n": f"{component}-n"}, place, f"{component}-n"),
        Effect(
            f"{component}.tolerations",
            [{"key": f"{component}-t", "operator": "Exists"}],
            place,
            f"{component}-t",
        ),
        Effect(
            f"{component}.affinity",
            {"podAffinity": {"mark": f"{component}-f"}},
            place,
            f"{component}-f",
        ),
        Effect(f"{component}.priorityClassName", f"{component}-p", place, f"{component}-p"),
    ]


def _budget(component: str) -> list[Effect]:
    path, place = f"{component}.podDisruptionBudget", f"PodDisruptionBudget/{component}"
    return [
        Effect(f"{path}.maxUnavailable", "31%", place, '"maxUnavailable": "31%"'),
        Effect(f"{path}.minAvailable", "32%", place, '"minAvailable": "32%"', 2),
    ]


def _limits(component: str, place: str) -> list[Effect]:
    return [
        Effect(f"{component}.backoffLimit", 17, place, '"backoffLimit": 17'),
        Effect(f"{component}.activeDeadlineSeconds", 3601, place, '"activeDeadlineSeconds": 3601'),
        Effect(f"{component}.ttlSecondsAfterFinished", 0, place, '"ttlSecondsAfterFinished": 0'),
    ]


def _spread(component: str) -> Effect:
    rule = [
        {"maxSkew": 7, "topologyKey": f"{component}-zone", "whenUnsatisfiable": "DoNotSchedule"}
    ]
    path = f"{component}.topologySpreadConstraints"
    return Effect(path, rule, f"Deployment/{component}", f"{component}-zone")


def _config() -> list[Effect]:
    spans = (
        *("livenessLimit", "statementTimeout", "lockTimeout", "idleInTransactionTimeout"),
        *("connectTimeout", "jobBudget", "replicationLagMax", "requestExpires"),
        *("journalRetention", "runRetention", "harvestRetention", "releaseTimeout"),
        *("releaseLease", "releaseBackoff", "releaseBackoffMax"),
    )
    counts = (
        *("workerConcurrency", "scopesPerPart", "scopesPerBatch", "rowsPerBatch"),
        *("maxRowsPerSecond", "releaseConcurrency", "releaseBatch", "releaseAttempts"),
    )
    words = {
        "ledgerSchema": "agents",
        "logLevel": "debug",
        "logFormat": "json",
        "workerPool": "prefork",
        "releaseBackend": "http",
        "releaseUrl": "https://t.example:8443/{scope}/{session_id}",
    }
    given = words | dict.fromkeys(spans, "97s") | dict.fromkeys(counts, 13)
    return [
        Effect(
            f"config.{key}",
            value,
            "Deployment/worker",
            f'"{variable(key)}", "value": "{value}"',
        )
        for key, value in given.items()
    ]


def variable(key: str) -> str:
    """The MAINT_ variable of a key of `config`."""
    return "MAINT_" + "".join(f"_{c}" if c.isupper() else c for c in key).upper()


def _secret(name: str, secret: str, key: str) -> str:
    reference = f'{{"secretKeyRef": {{"key": "{key}", "name": "{secret}"}}}}'
    return f'"name": "{name}", "valueFrom": {reference}'


_W, _B, _M, _N = "Deployment/worker", "Deployment/beat", "Job/", "NetworkPolicy/"
_JOB = "CronJob/reap"
_SHA = "sha256:" + "ab" * 32
JOBS = (
    *("reap", "flip-stale-running", "reconcile-parked", "release-sessions", "drain-harvest"),
    *("housekeeping", "audit-memory"),
)
_ALERT = "SemaMaintenanceJobNotSucceeding"

EFFECTS: list[Effect] = [
    Effect("nameOverride", "other", _W, '"app.kubernetes.io/name": "other"', 3),
    Effect("fullnameOverride", "whole", _W, '"name": "whole-worker"', 3),
    Effect("commonLabels", {"c": "label-c"}, "PodDisruptionBudget/worker", "label-c"),
    Effect("commonAnnotations", {"c": "note-c"}, "ServiceAccount/", "note-c"),
    Effect("revisionHistoryLimit", 0, _W, '"revisionHistoryLimit": 0'),
    Effect("global.imageRegistry", "global.example", _W, '"global.example/sema', 3),
    Effect("global.imagePullSecrets", ["global-pull"], _W, '{"name": "global-pull"}'),
    Effect("image.registry", "own.example:5000", _W, '"own.example:5000/team/sema:1.2"'),
    Effect("image.repository", "team/sema", _W, "team/sema"),
    Effect("image.tag", "1.2", _W, 'sema:1.2"'),
    Effect("image.digest", _SHA, _W, f'"sema-maintenance@{_SHA}"', 2),
    Effect("image.pullPolicy", "Always", _W, '"imagePullPolicy": "Always"'),
    Effect("imagePullSecrets", ["own-pull", {"name": "as-map"}], _W, '{"name": "as-map"}'),
    Effect("serviceAccount.create", False, _W, '"serviceAccountName": "default"', 3),
    Effect("serviceAccount.name", "an-account", _W, '"serviceAccountName": "an-account"'),
    Effect("serviceAccount.annotations", {"role": "arn-x"}, "ServiceAccount/", "arn-x"),
    Effect("database.host", "h.example", _W, '"PGHOST", "value": "h.example"'),
    Effect("database.port", "6543", _W, '"PGPORT", "value": "6543"'),
    Effect("database.name", "true", _W, '"PGDATABASE", "value": "true"'),
    Effect("database.user", "a b", _W, '"PGUSER", "value": "a b"'),
    Effect("database.sslMode", "require", _W, '"PGSSLMODE", "value": "require"'),
    Effect("database.existingSecret", "dbs", _W, _secret("PGPASSWORD", "dbs", "pw")),
    Effect("database.keys.password", "pw", _W, '"key": "pw"'),
    *(
        Effect(f"database.keys.{part}", f"k-{part}", _W, _secret(name, "sec", f"k-{part}"), 2)
        for part, name in {
            "user": "PGUSER",
            "host": "PGHOST",
            "port": "PGPORT",
            "name": "PGDATABASE",
        }.items()
    ),
    Effect("database.keys.url", "k-url", _W, _secret("MAINT_DATABASE_URL", "sec", "k-url"), 3),
    Effect("broker.scheme", "amqp", _W, '"amqp://brk.example:7/v%2Fh?a=b"'),
    Effect("broker.host", "brk.example", _W, "brk.example"),
    Effect("broker.port", 7, _W, "brk.example:7"),
    Effect("broker.name", "v/h", _W, "/v%2Fh"),
    Effect("broker.query", "a=b", _W, "?a=b"),
    Effect("broker.user", "bu", _W, '"MAINT_BROKER_USER", "value": "bu"'),
    Effect("broker.existingSecret", "bs", _W, _secret("MAINT_BROKER_PASSWORD", "bs", "bpw")),
    Effect("broker.keys.password", "bpw", _W, '"key": "bpw"'),
    Effect("broker.keys.user", "bk", _W, _secret("MAINT_BROKER_USER", "sec", "bk"), 2),
    Effect("broker.keys.url", "bkurl", _W, _secret("MAINT_BROKER_URL", "sec", "bkurl"), 3),
    Effect("policy.content", "# marked\n", "ConfigMap/policy", "# marked"),
    Effect("policy.existingConfigMap", "a-policy", _W, '{"items": [{"key": "p.toml"', 2),
    Effect("policy.key", "p.toml", "ConfigMap/policy", '"p.toml": "'),
    Effect("release.existingSecret", "rel-s", _W, '"secretName": "rel-s"'),
    Effect("release.tokenKey", "tk", _W, '{"key": "tk", "path": "token"}'),
    Effect("server.existingConfigMaps", ["srv"], _W, '{"configMapRef": {"name": "srv"}}'),
    *_config(),
    Effect("http.host", "[::]", _W, '"MAINT_HTTP_ADDRESS", "value": "[::]:9999"'),
    Effect("http.port", 9999, _N, '"port": 9999'),
    Effect("worker.replicas", 5, _W, '"replicas": 5', 2),
    Effect("worker.args", ["-Q", 1], _W, '"worker", "-Q", "1"]'),
    Effect("worker.strategy", {"rollingUpdate": {"maxSurge": 3}}, _W, '"maxSurge": 3'),
    Effect("worker.terminationGracePeriodSeconds", 77, _W, 'PeriodSeconds": 77'),
    *_pods("worker", _W),
    _spread("worker"),
    Effect("worker.autoscaling.enabled", True, "HorizontalPodAutoscaler/worker", "autoscaling/v2"),
    Effect(
        "worker.autoscaling.minReplicas", 3, "HorizontalPodAutoscaler/worker", '"minReplicas": 3'
    ),
    Effect(
        "worker.autoscaling.maxReplicas", 9, "HorizontalPodAutoscaler/worker", '"maxReplicas": 9'
    ),
    Effect(
        "worker.autoscaling.targetCPUUtilizationPercentage",
        61,
        "HorizontalPodAutoscaler/worker",
        '"averageUtilization": 61',
    ),
    Effect(
        "worker.autoscaling.targetMemoryUtilizationPercentage",
        62,
        "HorizontalPodAutoscaler/worker",
        '"averageUtilization": 62',
    ),
    Effect(
        "worker.autoscaling.metrics",
        [{"type": "marked"}],
        "HorizontalPodAutoscaler/worker",
        '{"type": "marked"}',
    ),
    Effect(
        "worker.autoscaling.behavior",
        {"scaleUp": {"stabilizationWindowSeconds": 63}},
        "HorizontalPodAutoscaler/worker",
        '"stabilizationWindowSeconds": 63',
    ),
    Effect("worker.podDisruptionBudget.enabled", False, "-PodDisruptionBudget/worker", "", 3),
    *_budget("worker"),
    Effect("beat.enabled", False, "-Deployment/beat", "", 3),
    Effect("beat.replicas", 0, _B, '"replicas": 0'),
    Effect("beat.args", ["--max-interval", "3"], _B, '"beat", "--max-interval", "3"]'),
    Effect("beat.strategy", {"type": "RollingUpdate"}, _B, '"type": "RollingUpdate"'),
    Effect("beat.terminationGracePeriodSeconds", "31", _B, 'PeriodSeconds": 31'),
    *_pods("beat", _B),
    _spread("beat"),
    Effect("beat.podDisruptionBudget.enabled", True, "PodDisruptionBudget/beat", "policy/v1"),
    *_budget("beat"),
    Effect("migration.enabled", False, "-Job/", "", 3),
    Effect("migration.wait", "3m", _W, '"--wait", "3m"]'),
    Effect("migration.createLedger", True, _M, '"--create-ledger"'),
    Effect("migration.indexes", True, _M, '"--indexes"'),
    Effect("migration.hooks", True, _M, '"helm.sh/hook": "pre-install,pre-upgrade"'),
    Effect("migration.revision", "again", "Job/", "migrate-again-", 2),
    Effect("migration.annotations", {"argo": "PreSync"}, _M, '"argo": "PreSync"'),
    Effect("migration.database.host", "direct", _M, '"PGHOST", "value": "direct"'),
    Effect("migration.database.port", 5433, _M, '"PGPORT", "value": "5433"'),
    Effect("migration.database.user", "owner", _M, '"PGUSER", "value": "owner"'),
    Effect("migration.database.existingSecret", "os", _M, _secret("PGPASSWORD", "os", "opw")),
    Effect("migration.database.keys.password", "opw", _M, '"key": "opw"'),
    Effect("migration.database.keys.user", "ou", _M, _secret("PGUSER", "sec", "ou"), 2),
    *_limits("migration", _M),
    *_pods("migration", _M),
    Effect("jobs.enabled", False, "-CronJob/reap", "", 3),
    *(
        Effect(f"jobs.args.{job}", ["--json"], f"CronJob/{job}", f'"{job}", "--json"]')
        for job in JOBS
    ),
    *_limits("jobs", _JOB),
    *_pods("jobs", _JOB),
    Effect("helmTest.enabled", False, "-Pod/doctor", "", 3),
    Effect("helmTest.args", ["--strict"], "Pod/doctor", '"doctor", "--strict"]'),
    Effect("helmTest.resources", {"limits": {"cpu": "9"}}, "Pod/doctor", '"cpu": "9"'),
    Effect("podLabels", {"pl": "of-all"}, "Pod/doctor", '"pl": "of-all"'),
    Effect("podAnnotations", {"pa": 5}, "Pod/doctor", '"pa": "5"'),
    Effect("openshift.adaptSecurityContext", True, _W, '-"runAsUser"', 2),
    Effect("podSecurityContext", {"runAsUser": 4242}, "Pod/doctor", '"runAsUser": 4242'),
    Effect("securityContext", {"privileged": False}, "Pod/doctor", '"privileged": false'),
    Effect("tmpSizeLimit", "1Gi", "Pod/doctor", '"sizeLimit": "1Gi"'),
    Effect("nodeSelector", {"ns": 1}, "Pod/doctor", '"nodeSelector": {"ns": "1"}'),
    Effect("tolerations", [{"operator": "Exists"}], "Pod/doctor", '[{"operator": "Exists"}]'),
    Effect("affinity", {"nodeAffinity": {"x": "all-a"}}, "Pod/doctor", "all-a"),
    Effect("priorityClassName", "of-all", "Pod/doctor", '"priorityClassName": "of-all"'),
    Effect("runtimeClassName", "gvisor", _W, '"runtimeClassName": "gvisor"'),
    Effect("schedulerName", "mine", _W, '"schedulerName": "mine"'),
    Effect("hostAliases", [{"ip": "10.9.9.9"}], _W, '"10.9.9.9"'),
    Effect("dnsConfig", {"searches": ["s.example"]}, _W, '"s.example"'),
    Effect("probes.liveness", {"periodSeconds": 41}, _W, '"periodSeconds": 41'),
    Effect("probes.readiness", {"periodSeconds": 42}, _W, '"periodSeconds": 42'),
    Effect("probes.startup", {"periodSeconds": 43}, _W, '"periodSeconds": 43'),
    Effect("extraEnv", [{"name": "X", "value": 1000000}], _M, '{"name": "X", "value": "1000000"}'),
    Effect("extraEnvFrom", [{"secretRef": {"name": "xs"}}], _M, '{"secretRef": {"name": "xs"}}'),
    Effect("extraVolumes", [{"name": "xv", "emptyDir": {}}], _M, '{"emptyDir": {}, "name": "xv"}'),
    Effect("extraVolumeMounts", [{"name": "xv", "mountPath": "/x"}], _M, '{"mountPath": "/x"'),
    Effect("extraInitContainers", [{"name": "xi", "image": "i"}], _M, '"name": "xi"'),
    Effect(
        "extraObjects",
        [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "{{ .Release.Name }}-x"}}],
        "Secret/x",
        '"rel-x"',
    ),
    Effect("metrics.podMonitor.enabled", True, "PodMonitor/", "podMetricsEndpoints"),
    Effect("metrics.podMonitor.labels", {"m": "pm-l"}, "PodMonitor/", "pm-l"),
    Effect("metrics.podMonitor.interval", "33s", "PodMonitor/", '"interval": "33s"'),
    Effect("metrics.podMonitor.scrapeTimeout", "9s", "PodMonitor/", '"scrapeTimeout": "9s"'),
    Effect("metrics.podMonitor.relabelings", [{"regex": "r1"}], "PodMonitor/", '"relabelings": [{'),
    Effect("metrics.podMonitor.metricRelabelings", [{"regex": "r2"}], "PodMonitor/", '"r2"'),
    Effect("metrics.prometheusRule.enabled", True, "PrometheusRule/", '"groups": [{'),
    Effect("metrics.prometheusRule.labels", {"m": "pr-l"}, "PrometheusRule/", "pr-l"),
    Effect("metrics.prometheusRule.ruleLabels", {"t": "rule-l"}, "PrometheusRule/", "rule-l"),
    Effect(
        "metrics.prometheusRule.runbookUrlBase",
        "https://r.example/main/",
        "PrometheusRule/",
        '"https://r.example/main/docs/runbooks/',
    ),
    Effect("metrics.prometheusRule.disabledAlerts", [_ALERT], "PrometheusRule/", f'-{_ALERT}"', 4),
    Effect(
        "metrics.prometheusRule.extraGroups",
        [{"name": "mine", "rules": []}],
        "PrometheusRule/",
        '{"name": "mine"',
    ),
    Effect("metrics.dashboards.enabled", True, "ConfigMap/dashboards", "sema-maintenance.json"),
    Effect("metrics.dashboards.namespace", "grafana", "ConfigMap/dashboards", '"grafana"'),
    Effect("metrics.dashboards.labels", {"d": "d-l"}, "ConfigMap/dashboards", "d-l"),
    Effect("metrics.dashboards.annotations", {"d": "d-a"}, "ConfigMap/dashboards", "d-a"),
    Effect("networkPolicy.enabled", True, _N, '"policyTypes": ["Ingress", "Egress"]'),
    *(
        Effect(f"networkPolicy.{key}", *(_peer(key)[:1]), _N, f'"{side}": [{_peer(key)[1]}]')
        for key, side in {
            "from": "from",
            "dnsTo": "to",
            "databaseTo": "to",
            "brokerTo": "to",
            "releaseTo": "to",
        }.items()
    ),
    Effect("networkPolicy.databasePorts", ["6001"], _N, '"port": 6001'),
    Effect("networkPolicy.brokerPorts", [6002], _N, '"port": 6002'),
    Effect("networkPolicy.extraIngress", [{"from": _peer("xin")[0]}], _N, _peer("xin")[1]),
    Effect("networkPolicy.extraEgress", [{"to": _peer("xout")[0]}], _N, _peer("xout")[1]),
]
