"""A database that notes the plan of every statement before it runs it, and keeps nothing."""

from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import DictRow

from store.database import Database, Transaction
from store.statements import Statements

Params = Mapping[str, Any]
_PARENTS = """
    select part.relname, whole.relname
    from pg_inherits i
    join pg_class part on part.oid = i.inhrelid
    join pg_class whole on whole.oid = i.inhparent
    where whole.relkind = 'I'
"""


def parents_of(connection: psycopg.Connection[Any]) -> dict[str, str]:
    """By the index of a partition, the index of the whole table that it belongs to."""
    return dict(connection.execute(_PARENTS).fetchall())


class Plan:
    """One plan as EXPLAIN gives it."""

    def __init__(self, root: Mapping[str, Any], parents: Mapping[str, str]) -> None:
        self.nodes = [*_walk(root)]
        self._parents = parents

    @property
    def indexes(self) -> set[str]:
        """The indexes it uses; one of a partition counts as the one it is a part of."""
        return {self._index_of(node) for node in self.nodes if "Index Name" in node}

    @property
    def read_whole(self) -> set[str]:
        """The tables or partitions that it reads from end to end."""
        return {node["Relation Name"] for node in self.nodes if node["Node Type"] == "Seq Scan"}

    def scans_of(self, index: str) -> list[Mapping[str, Any]]:
        """The nodes that use an index."""
        return [n for n in self.nodes if "Index Name" in n and self._index_of(n) == index]

    def __str__(self) -> str:
        shown = ("Node Type", "Relation Name", "Index Name", "Index Cond", "Filter", "Plan Rows")
        return "\n".join(
            ", ".join(f"{name}: {node[name]}" for name in shown if name in node)
            for node in self.nodes
        )

    def _index_of(self, node: Mapping[str, Any]) -> str:
        name: str = node["Index Name"]
        return self._parents.get(name, name)


def _walk(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _walk(child)


class ExplainingDatabase(Database):
    """Runs what a job runs, with the job's own parameters, and rolls every transaction back."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.plans: defaultdict[str, list[Plan]] = defaultdict(list)
        self.params: dict[str, Params] = {}
        with psycopg.connect(url) as connection:
            self._parents = parents_of(connection)

    @contextmanager
    def transaction(self, **how: Any) -> Iterator[Transaction]:
        with super().transaction(**how) as tx:
            yield _ExplainingTransaction(tx._connection, self.statements, self)
            # WHY: the statements after this one are to meet the same ledger.
            tx._connection.rollback()

    def note(self, statement: str, params: Params, explained: DictRow) -> None:
        """Keep a plan, and the first parameters that its statement was run with."""
        (found,) = explained["QUERY PLAN"]
        self.plans[statement].append(Plan(found["Plan"], self._parents))
        self.params.setdefault(statement, params)


class _ExplainingTransaction(Transaction):
    def __init__(
        self,
        connection: psycopg.Connection[DictRow],
        statements: Statements,
        database: ExplainingDatabase,
    ) -> None:
        super().__init__(connection, statements)
        self._database = database

    def rows(self, statement: str, params: Params | None = None) -> list[DictRow]:
        self._explain(statement, params or {})
        return super().rows(statement, params)

    def one(self, statement: str, params: Params | None = None) -> DictRow | None:
        self._explain(statement, params or {})
        return super().one(statement, params)

    def do(self, statement: str, params: Params | None = None) -> int:
        self._explain(statement, params or {})
        return super().do(statement, params)

    def stream(
        self, statement: str, params: Params | None = None, *, size: int = 1000
    ) -> Generator[DictRow, None, None]:
        self._explain(statement, params or {})
        yield from super().stream(statement, params, size=size)

    def _explain(self, statement: str, params: Params) -> None:
        explain = b"explain (format json) " + self._statements[statement]
        explained = self._connection.execute(explain, params).fetchone()
        assert explained is not None
        self._database.note(statement, params, explained)
