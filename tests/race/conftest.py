"""Fixtures of the race suite: the ledger's rows, live writers, and jobs patient or hasty."""

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from store.agents import PostgresAgentStore
from store.checkpoints import PostgresCheckpointStore
from store.database import Database, Limits
from tests.conftest import Servers
from tests.race.jobs import HASTY, PATIENT, Jobs, SteppedDatabase
from tests.race.rows import Rows
from tests.race.writer import Writer


class Kept:
    """Connections kept from test to test: to make them anew takes longer than most tests do."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._rows: dict[tuple[str, str], Rows] = {}
        self._writers: dict[tuple[str, str, str], Writer] = {}
        self._databases: dict[tuple[str, str, Limits], SteppedDatabase] = {}

    def rows(self, url: str, schema: str) -> Rows:
        key = (url, schema)
        if key not in self._rows:
            self._rows[key] = self._stack.enter_context(closing(Rows(url, schema)))
        return self._rows[key]

    def writer(self, url: str, schema: str, who: str) -> Writer:
        key = (url, schema, who)
        if key not in self._writers:
            self._writers[key] = self._stack.enter_context(closing(Writer(url, schema)))
        return self._writers[key]

    def database(self, url: str, schema: str, limits: Limits) -> SteppedDatabase:
        key = (url, schema, limits)
        if key not in self._databases:
            self._databases[key] = self._stack.enter_context(closing(SteppedDatabase(*key)))
        return self._databases[key]


@pytest.fixture(scope="session")
def kept(servers: Servers) -> Iterator[Kept]:
    """Closed before the servers stop."""
    with ExitStack() as stack:
        yield Kept(stack)


@pytest.fixture
def rows(ledger: tuple[str, Database], kept: Kept) -> Rows:
    """The ledger's rows, placed and read by plain SQL."""
    url, database = ledger
    return kept.rows(url, database.statements.ledger_schema)


@pytest.fixture
def writer(ledger: tuple[str, Database], kept: Kept) -> Iterator[Writer]:
    """A live writer; what it has not committed by the end of the test is taken back."""
    url, database = ledger
    writer = kept.writer(url, database.statements.ledger_schema, "writer")
    yield writer
    writer.rollback()


@pytest.fixture
def other_writer(ledger: tuple[str, Database], kept: Kept) -> Iterator[Writer]:
    """A second one."""
    url, database = ledger
    writer = kept.writer(url, database.statements.ledger_schema, "other writer")
    yield writer
    writer.rollback()


class Crew:
    """Makes jobs on one ledger, and sees that whatever was to be done between their steps was."""

    def __init__(self, kept: Kept, url: str, schema: str) -> None:
        self._kept = kept
        self._url = url
        self._schema = schema
        self._used: list[SteppedDatabase] = []
        self._stack = ExitStack()

    def jobs(self, limits: Limits, application: str | None = None) -> Jobs:
        """Jobs on connections that are kept, or on some of their own under another name."""
        if application is None:
            database = self._kept.database(self._url, self._schema, limits)
        else:
            own = SteppedDatabase(self._url, self._schema, limits, application)
            database = self._stack.enter_context(closing(own))
        self._used.append(database)
        return Jobs(self._kept.rows(self._url, self._schema), database)

    def close(self) -> None:
        self._stack.close()
        left = [act for database in self._used for act in database.forget()]
        assert left == []


@pytest.fixture
def crew(ledger: tuple[str, Database], kept: Kept) -> Iterator[Crew]:
    """For tests with several jobs at once."""
    url, database = ledger
    with closing(Crew(kept, url, database.statements.ledger_schema)) as crew:
        yield crew


@pytest.fixture
def jobs(crew: Crew) -> Jobs:
    """Jobs that wait for a lock as long as it takes."""
    return crew.jobs(PATIENT)


@pytest.fixture
def hasty_jobs(crew: Crew) -> Jobs:
    """Jobs that give up a lock at once."""
    return crew.jobs(HASTY)


@pytest.fixture
def agents(jobs: Jobs) -> PostgresAgentStore:
    """The store contract on the patient jobs' database."""
    return PostgresAgentStore(jobs.database)


@pytest.fixture
def checkpoints(jobs: Jobs) -> PostgresCheckpointStore:
    """The checkpoints of the same database."""
    return PostgresCheckpointStore(jobs.database)
