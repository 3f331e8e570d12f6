"""Helm 4 and 3, fetched by the bootstrap script, and the chart rendered by them."""

import pytest

from deploy.tools import bootstrap
from tests.chart.rendering import MINIMAL, Helm, Rendered
from tests.conftest import unavailable


def _helm(tool: bootstrap.Tool, factory: pytest.TempPathFactory) -> Helm:
    try:
        program = bootstrap.fetch(tool)
    except bootstrap.Unavailable as error:
        unavailable(str(error))
    return Helm(program, factory.mktemp(tool.name))


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm 4."""
    return _helm(bootstrap.TOOLS[0], tmp_path_factory)


@pytest.fixture(scope="session")
def helm3(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm 3, with which the chart renders the same."""
    return _helm(bootstrap.TOOLS[1], tmp_path_factory)


@pytest.fixture(scope="session")
def minimal(helm: Helm) -> Rendered:
    """The chart with no more than it must be told."""
    return helm.template(MINIMAL)
