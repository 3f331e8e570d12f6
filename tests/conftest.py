"""Fixtures of every suite: each Postgres version, started once, with a ledger in each layout."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NoReturn

import pytest

from store.database import Database
from tests import ledgers

# Set by CI: what could not be tested is then a failure, not a line in the summary.
REQUIRE_ALL = "SEMA_TEST_REQUIRE_ALL"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Under CI, a skipped test is a failed session."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get(REQUIRE_ALL) and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def unavailable(reason: str) -> NoReturn:
    """Skip the test for want of a server; under CI, fail it."""
    if os.environ.get(REQUIRE_ALL):
        pytest.fail(reason)
    pytest.skip(reason)


class Servers:
    """Started at first use, stopped at the end of the session."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._urls: dict[str, str] = {}
        self._databases: dict[tuple[str, ledgers.Layout], tuple[str, Database]] = {}

    def url(self, version: str) -> str:
        """The URL of the version's server; skips the test where there is none."""
        if reason := ledgers.why_unavailable(version):
            unavailable(reason)
        if version not in self._urls:
            url = self._stack.enter_context(ledgers.server(version))
            if os.environ.get(REQUIRE_ALL):
                assert ledgers.major_version(url) == version, "another version is not the one meant"
            self._urls[version] = url
        return self._urls[version]

    def ledger(self, version: str, layout: ledgers.Layout) -> tuple[str, Database]:
        """The URL and the (emptied) database of one ledger."""
        key = (version, layout)
        if key not in self._databases:
            name = f"sema_test_{layout}_{os.getpid()}"
            url = self._stack.enter_context(ledgers.fresh_database(self.url(version), name))
            database = ledgers.create(url, layout)
            self._stack.callback(database.close)
            self._databases[key] = (url, database)
        ledgers.empty(self._databases[key][1])
        return self._databases[key]


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """Every Postgres server of the session."""
    with ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture(
    params=[(v, layout) for v in ledgers.VERSIONS for layout in ledgers.LAYOUTS],
    ids=lambda p: f"pg{p[0]}-{p[1]}",
)
def ledger(servers: Servers, request: pytest.FixtureRequest) -> tuple[str, Database]:
    """An empty ledger as (url, database): every server version times every layout."""
    version, layout = request.param
    return servers.ledger(version, layout)


@pytest.fixture
def ledger_url(ledger: tuple[str, Database]) -> str:
    """The URL of the ledger, for connections of a test's own."""
    return ledger[0]


@pytest.fixture
def database(ledger: tuple[str, Database]) -> Database:
    """The ledger's database."""
    return ledger[1]


@pytest.fixture(params=ledgers.VERSIONS, ids=lambda v: f"pg{v}")
def plain_ledger(servers: Servers, request: pytest.FixtureRequest) -> tuple[str, Database]:
    """An empty ledger on a plain table, on every server version."""
    return servers.ledger(request.param, "plain")
