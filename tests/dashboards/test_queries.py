"""Every query of the dashboards, asked of a real Prometheus that scrapes a real worker and beat."""

import itertools
import json
import math
import os
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.dashboards.generate import files
from tests.conftest import Servers, unavailable
from tests.e2e.deployment import SAMPLE_POLICY, deployments, load_sample, valkey
from tests.ports import free_port
from tests.waiting import wait_until

# What Grafana puts in the place of its own variables.
_VARIABLES = {"$__rate_interval": "1m", "$__range": "5m", "$namespace": ".*"}
_SCRAPES = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: sema-maintenance
    honor_labels: true
    static_configs: [{{targets: {targets}}}]
"""


def queries() -> dict[str, str]:
    """Every query by the panel it is of, as Prometheus gets it."""
    found = {}
    for name, text in files().items():
        for panel in json.loads(text)["panels"]:
            for query in panel.get("targets", ()):
                expression = query["expr"]
                for variable, value in _VARIABLES.items():
                    expression = expression.replace(variable, value)
                found[f"{name}: {panel['title']} ({query['refId']})"] = expression
    return found


@contextmanager
def prometheus(folder: Path, *targets: str) -> Iterator[str]:
    """The URL of a Prometheus that scrapes these addresses once a second."""
    config = folder / "prometheus.yml"
    config.write_text(_SCRAPES.format(targets=json.dumps(targets)), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'series'}",
        f"--web.listen-address={address}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={"PATH": os.defpath})
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(30)


def answer(url: str, expression: str) -> list[dict[str, Any]]:
    """The series that Prometheus gives for a query; one that it cannot read fails the test."""
    asked = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"{url}/api/v1/query?{asked}", timeout=30) as answered:
            found = json.load(answered)["data"]
    except urllib.error.HTTPError as error:
        pytest.fail(f"{expression}: {error.read().decode()}")
    assert found["resultType"] == "vector"
    series = found["result"]
    assert isinstance(series, list)
    return series


def test_every_query_is_answered(servers: Servers, tmp_path: Path) -> None:
    """With a number at least, while the sample ledger is worked through."""
    if shutil.which("prometheus") is None:
        unavailable("no prometheus here: install Debian's prometheus")
    places = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    with (
        valkey() as broker,
        deployments(tmp_path, servers.url("18"), broker, itertools.count(90)) as deploy,
    ):
        deployment = deploy(POLICY_FILE=SAMPLE_POLICY)
        load_sample(deployment.url, deployment.database)
        deployment.worker(HTTP_ADDRESS=places[0])
        deployment.beat(HTTP_ADDRESS=places[1])
        with prometheus(tmp_path, *places) as url:
            wait_until(lambda: is_up(url), "Prometheus answers")
            open_questions = queries()

            def all_answered() -> bool:
                for name, expression in [*open_questions.items()]:
                    numbers = [float(series["value"][1]) for series in answer(url, expression)]
                    if any(not math.isnan(number) for number in numbers):
                        del open_questions[name]
                return not open_questions

            try:
                wait_until(all_answered, "every query is answered", 120, every_s=0.5)
            except AssertionError:
                pytest.fail(f"nothing was said to {open_questions}")

            # One installation, however many processes: no series twice.
            [answers] = answer(url, queries()["sema-maintenance.json: Database (A)"])
            assert answers["value"][1] == "1"
            reaped = answer(url, "max without (instance, pod) (background_agent_reaped_total)")
            assert {series["metric"]["arm"] for series in reaped} == {"max_age", "keep"}
            assert len(reaped) == 2
            assert sum(float(series["value"][1]) for series in reaped) > 0


def is_up(url: str) -> bool:
    """Whether Prometheus listens."""
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5) as ready:
            return bool(ready.status == 200)
    except OSError:
        return False
