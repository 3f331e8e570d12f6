"""The stores that one suite is for: the reference in memory, and Postgres in every layout."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from tests.conftest import Servers
from tests.store.stores import ALL, MEMORY, MemoryStores, PostgresStores, Stores, opened


@pytest.fixture(scope="session")
def empty_stores(servers: Servers) -> Iterator[Callable[[str], Stores]]:
    """Gives the stores of a name, empty; each ledger is opened once."""
    with ExitStack() as stack:

        @cache
        def postgres(name: str) -> PostgresStores:
            return stack.enter_context(opened(servers, name))

        def empty(name: str) -> Stores:
            if name == MEMORY:
                return MemoryStores()
            stores = postgres(name)
            stores.empty()
            return stores

        yield empty


@pytest.fixture(params=ALL)
def stores(empty_stores: Callable[[str], Stores], request: pytest.FixtureRequest) -> Stores:
    """Each store in turn, empty, working in batches of three rows."""
    return empty_stores(request.param)
