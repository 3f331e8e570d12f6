"""Write the chart's dashboards; `make dashboards`. What they show stands in `panels.py`."""

import json
from pathlib import Path
from typing import Any, Final

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.builders.common import (
    GraphThresholdsStyleConfig,
    ReduceDataOptions,
    StackingConfig,
    VizLegendOptions,
    VizTooltipOptions,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from deploy.dashboards.panels import ROWS, Panel

FOLDER: Final = Path(__file__).parents[1] / "helm" / "sema-maintenance" / "files" / "dashboards"
FILE_NAME: Final = "sema-maintenance.json"
# WHY a variable: which Prometheus it is, differs from place to place.
_SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
_GREEN, _RED = "green", "red"
_WIDTH: Final = 24
_HEIGHT, _LOW = 8, 4

Builder = stat.Panel | timeseries.Panel | statetimeline.Panel


def files() -> dict[str, str]:
    """Each dashboard's file by its name, as it is to be."""
    built = json.dumps(_dashboard(), cls=JSONEncoder, indent=2, sort_keys=True)
    return {FILE_NAME: built + "\n"}


def _dashboard() -> Any:
    board = (
        dashboard.Dashboard("Sema maintenance")
        .uid("sema-maintenance")
        .description("The caretaker of the background-agent ledger: is it well, and what it does.")
        .tags(["sema-maintenance"])
        .time("now-6h", "now")
        .refresh("1m")
        .timezone("utc")
        .readonly()
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
        .with_variable(
            dashboard.QueryVariable("namespace")
            .label("Namespace")
            .datasource(_SOURCE)
            .query("label_values(maintenance_build_info, namespace)")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(VariableSort.ALPHABETICAL_ASC)
            .include_all(include_all=True)
            # WHY it also fits none: outside of Kubernetes there is no such label.
            .all_value(".*")
            .current(VariableOption(text="All", value="$__all"))
            .multi(multi=True)
        )
    )
    number = 0
    for row in ROWS:
        board = board.with_row(dashboard.Row(row.title))
        numbers = all(panel.kind == "number" for panel in row.panels)
        # WHY two where three do not come out even: a line is full.
        in_a_line = len(row.panels) if numbers else 3 if len(row.panels) % 3 == 0 else 2
        for panel in row.panels:
            number += 1
            built = _built(panel).id(number).span(_WIDTH // in_a_line)
            board = board.with_panel(built.height(_LOW if numbers else _HEIGHT))
    return board.build()


def _built(panel: Panel) -> Builder:
    builder = _drawn(panel)
    builder = (
        builder.title(panel.title)
        .description(panel.description)
        .datasource(_SOURCE)
        .unit(panel.unit)
        .thresholds(_thresholds(panel))
    )
    if panel.answers:
        words = {
            str(value): ValueMappingResult(text=word, index=index)
            for index, (value, word) in enumerate(panel.answers)
        }
        builder = builder.mappings([ValueMap(options=words)])
    for index, (expression, legend) in enumerate(panel.queries):
        query = prometheus.Dataquery().expr(expression).legend_format(legend)
        query = query.ref_id(chr(ord("A") + index)).datasource(_SOURCE)
        builder = builder.with_target(query.instant() if panel.kind == "number" else query.range())
    return builder


def _drawn(panel: Panel) -> Builder:
    match panel.kind:
        case "number":
            last = ReduceDataOptions().calcs(["lastNotNull"])
            return stat.Panel().reduce_options(last).decimals(0)
        case "states":
            return statetimeline.Panel().row_height(0.8)
        case "graph":
            return _graph(panel)


def _graph(panel: Panel) -> timeseries.Panel:
    graph = (
        timeseries.Panel()
        .legend(
            VizLegendOptions()
            .display_mode(LegendDisplayMode.TABLE)
            .placement(LegendPlacement.BOTTOM)
            .calcs(["lastNotNull", "max"])
            .show_legend(show_legend=True)
        )
        .tooltip(VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
        .fill_opacity(10)
    )
    if not panel.signed:
        graph = graph.min(0)
    if panel.stacked:
        graph = graph.stacking(StackingConfig().mode(StackingMode.NORMAL))
    if panel.bad_from is not None:
        style = GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED)
        graph = graph.thresholds_style(style)
    return graph


def _thresholds(panel: Panel) -> dashboard.ThresholdsConfig:
    steps = [Threshold(value=None, color=_GREEN)]
    if panel.bad_below is not None:
        steps = [Threshold(value=None, color=_RED), Threshold(value=panel.bad_below, color=_GREEN)]
    elif panel.bad_from is not None:
        steps.append(Threshold(value=panel.bad_from, color=_RED))
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def main() -> None:
    """Write every file anew."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
