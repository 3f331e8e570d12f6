"""The dashboards in the chart are those that the code makes, and each of their panels is whole."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from deploy.dashboards.generate import FOLDER, files
from worker.metrics import METRICS

BOARDS = {name: json.loads(text) for name, text in files().items()}


def panels() -> Iterator[Any]:
    for name, board in BOARDS.items():
        for panel in board["panels"]:
            if panel["type"] != "row":
                yield pytest.param(panel, id=f"{name}:{panel['title']}")


def test_what_is_committed_is_what_the_code_makes() -> None:
    """`make dashboards` writes them anew."""
    committed = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}

    assert committed == files()


@pytest.mark.parametrize("panel", [*panels()])
def test_every_panel_says_what_it_shows(panel: dict[str, Any]) -> None:
    """In words and in a unit; whose data it is, the reader chooses; several processes are one."""
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    for source in (panel["datasource"], *(query["datasource"] for query in panel["targets"])):
        assert source == {"type": "prometheus", "uid": "${datasource}"}
    for query in panel["targets"]:
        by_process = query["legendFormat"] == "{{instance}}" or "count by" in query["expr"]
        assert by_process or re.search(r"max without \(instance, pod(, job)?\) \(", query["expr"])


def test_panels_have_numbers_and_places_of_their_own() -> None:
    for board in BOARDS.values():
        shown = [panel for panel in board["panels"] if panel["type"] != "row"]
        places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in shown]

        assert len({panel["id"] for panel in shown}) == len({*places}) == len(shown)


def test_every_metric_is_on_a_dashboard() -> None:
    expressions = " ".join(
        query["expr"]
        for board in BOARDS.values()
        for panel in board["panels"]
        for query in panel.get("targets", ())
    )
    named = {*re.findall(r"[a-z_]+", expressions)}

    assert {m.name for m in METRICS if not {m.name, f"{m.name}_sum"} & named} == set()
