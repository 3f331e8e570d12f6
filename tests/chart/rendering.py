"""The chart as `helm template` renders it, each set of values once."""

import copy
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from deploy.tools import bootstrap

CHART = bootstrap.FOLDER.parents[1] / "deploy" / "helm" / "sema-maintenance"
CI = sorted((CHART / "ci").glob("*-values.yaml"))
# What has to be said.
MINIMAL: dict[str, Any] = yaml.safe_load((CHART / "ci" / "minimal-values.yaml").read_text())
Object = dict[str, Any]


class Refused(Exception):
    """What helm said as it refused the values."""


class Rendered:
    """The objects of one release."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def objects(self) -> list[Object]:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return [each for each in yaml.load_all(self.text, loader) if each]

    def one(self, kind: str, suffix: str = "") -> Object:
        """The one object of a kind whose name ends so."""
        [found] = self.all(kind, suffix)
        return found

    def all(self, kind: str, suffix: str = "") -> list[Object]:
        return [
            each
            for each in self.objects
            if each["kind"] == kind and each["metadata"]["name"].endswith(suffix)
        ]

    def pods(self) -> Iterator[tuple[str, Object]]:
        """The pod of everything that has one, as (kind/name, pod with metadata and spec)."""
        for each in self.objects:
            name = f"{each['kind']}/{each['metadata']['name']}"
            match each["kind"]:
                case "Pod":
                    yield name, each
                case "Deployment" | "Job":
                    yield name, each["spec"]["template"]
                case "CronJob":
                    yield name, each["spec"]["jobTemplate"]["spec"]["template"]

    def container(self, kind: str, suffix: str) -> Object:
        """The container of ours in the pod of that object."""
        [pod] = [
            pod
            for name, pod in self.pods()
            if name.startswith(f"{kind}/") and name.endswith(suffix)
        ]
        [container] = pod["spec"]["containers"]
        return dict(container)

    def env(self, kind: str, suffix: str) -> dict[str, Any]:
        """The variables of that container; what comes from elsewhere as it stands."""
        return {
            each["name"]: each.get("value", each.get("valueFrom"))
            for each in self.container(kind, suffix)["env"]
        }


class Helm:
    """One release of helm. Nothing of the machine's own configuration reaches it."""

    def __init__(self, program: Path, scratch: Path) -> None:
        self._program = program
        self._scratch = scratch
        self._rendered: dict[tuple[object, ...], Rendered | Refused] = {}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self._program), *arguments],
            env={"HOME": str(self._scratch), "PATH": os.defpath},
            cwd=self._scratch,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def template(
        self,
        values: Mapping[str, Any] | Path | None = None,
        *arguments: str,
        release: str = "rel",
        chart: Path = CHART,
    ) -> Rendered:
        """Render the chart with these values alone. Raises Refused."""
        text = values.read_text() if isinstance(values, Path) else json.dumps(values or {})
        key = (text, arguments, release, chart)
        if key not in self._rendered:
            with tempfile.NamedTemporaryFile("w", suffix=".yaml", dir=self._scratch) as file:
                file.write(text)
                file.flush()
                ended = self.run("template", release, str(chart), "-f", file.name, *arguments)
            self._rendered[key] = (
                Refused(ended.stderr) if ended.returncode else Rendered(ended.stdout)
            )
        found = self._rendered[key]
        if isinstance(found, Refused):
            raise found
        return found


def with_values(base: Mapping[str, Any], *more: tuple[str, Any]) -> dict[str, Any]:
    """The values with others put in, each by its path with dots."""
    merged = copy.deepcopy(dict(base))
    for path, value in more:
        *above, last = path.split(".")
        node = merged
        for key in above:
            node = node.setdefault(key, {})
        node[last] = value
    return merged
