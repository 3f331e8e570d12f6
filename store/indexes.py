"""Give an existing ledger the indexes it lacks, while its writers go on.

A table gets each index concurrently. A partitioned one cannot: its index is made empty on the
parent alone, concurrently on each partition, and is whole once all of those are attached. A view
has no indexes; its owner gets the statements to run. Interrupted at any point, it goes on the next
time: what was left half made by then is dropped and made again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final, Literal

from psycopg import errors as pg

from store.database import Database, Transaction
from store.errors import StoreUnusable
from store.statements import quoted

_TABLE: Final = "background_agents"
_STATEMENT: Final = re.compile(
    r"create index if not exists (\w+)\s+on ledger\.\w+\s+(.*?);", re.DOTALL
)
_NAME_BYTES_MAX: Final = 63
# WHY short waits and many: whoever queues behind a lock request waits as long as it does.
_LOCK_WAIT: Final = "1s"
_LOCK_TRIES: Final = 60

Relation = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Index:
    """One index that the jobs look rows up by; `definition` is what follows the table's name."""

    name: str
    definition: str


@dataclass(frozen=True, slots=True)
class Step:
    """What was found or done of one index on one relation."""

    index: str
    relation: str
    action: Literal["present", "made", "made again", "attached"]


def shipped_indexes() -> list[Index]:
    """The indexes of this release, as a new ledger gets them."""
    file = resources.files("store").joinpath("sql", "ledger", "create_indexes.sql")
    text = re.sub(r"--[^\n]*", "", file.read_text(encoding="utf-8"))
    return [Index(name, definition) for name, definition in _STATEMENT.findall(text)]


def statements_for_view(database: Database) -> list[str] | None:
    """Where the ledger is a view: what to run on the table behind it; else None."""
    with database.transaction(read_only=True) as tx:
        relation = _relation(tx, database.statements.ledger_schema)
    if relation["kind"] in {"r", "p"}:
        return None
    return [
        f"create index concurrently if not exists {index.name} on {_named(relation)} "
        f"{' '.join(index.definition.split())};"
        for index in shipped_indexes()
    ]


def create_missing_indexes(database: Database) -> Iterator[Step]:
    """Make what is missing; yields after each step. Safe to repeat, also after an interruption.

    Waits for transactions that are open elsewhere. Raises StoreError.
    """
    with database.outside_transactions() as tx:
        relation = _relation(tx, database.statements.ledger_schema)
        for index in shipped_indexes():
            yield from _ensure(tx, index, index.name, relation)


def create_missing_tables(database: Database) -> None:
    """Make those of the server's tables that are not there, and no index on one that is."""
    with database.transaction() as tx:
        tx.run_script("ledger/create_tables")


def _relation(tx: Transaction, schema: str) -> Relation:
    relation = tx.one("index_relation", {"schema": schema, "table": _TABLE})
    if relation is None:
        raise StoreUnusable(
            f"there is no table {_TABLE} in schema {schema}; check MAINT_LEDGER_SCHEMA"
        )
    return relation


def _ensure(tx: Transaction, index: Index, name: str, relation: Relation) -> Iterator[Step]:
    if relation["kind"] == "p":
        yield from _ensure_partitioned(tx, index, name, relation)
        return
    state = _state(tx, name, relation)
    if state is not None and state["valid"]:
        yield Step(name, relation["name"], "present")
        return
    if state is not None:
        # A build that was interrupted leaves an index that is written to and never read.
        tx.script(f"drop index concurrently {quoted(relation['schema'])}.{quoted(name)}")
    tx.script(f"create index concurrently {quoted(name)} on {_named(relation)} {index.definition}")
    yield Step(name, relation["name"], "made" if state is None else "made again")


def _ensure_partitioned(
    tx: Transaction, index: Index, name: str, relation: Relation
) -> Iterator[Step]:
    state = _state(tx, name, relation)
    if state is not None and state["valid"]:
        yield Step(name, relation["name"], "present")
        return
    if state is None:
        _patiently(tx, f"create index {quoted(name)} on only {_named(relation)} {index.definition}")
        state = _state(tx, name, relation)
    assert state is not None, "it was just made"  # noqa: S101 - narrows the type
    whole = f"{quoted(relation['schema'])}.{quoted(name)}"
    partitions = tx.rows("index_partitions", {"table": relation["oid"], "index": state["oid"]})
    for partition in partitions:
        if partition["attached"] is None:
            part = _part_name(index, partition)
            yield from _ensure(tx, index, part, partition)
            attached = f"{quoted(partition['schema'])}.{quoted(part)}"
            _patiently(tx, f"alter index {whole} attach partition {attached}")
    yield Step(name, relation["name"], "attached")


def _state(tx: Transaction, name: str, relation: Relation) -> Relation | None:
    state = tx.one("index_state", {"schema": relation["schema"], "index": name})
    if state is not None and state["table"] != relation["oid"]:
        raise StoreUnusable(
            f"index {name} in schema {relation['schema']} belongs to another table than "
            f"{relation['name']}; rename or drop it"
        )
    return state


def _part_name(index: Index, partition: Relation) -> str:
    suffix = index.name.removeprefix(_TABLE)
    name = f"{partition['name']}{suffix}"
    return name if len(name.encode()) <= _NAME_BYTES_MAX else f"part_{partition['oid']}{suffix}"


def _patiently(tx: Transaction, statement: str) -> None:
    """Run a statement whose lock stops writers for a moment, giving way to them in between."""
    tx.script(f"set lock_timeout = '{_LOCK_WAIT}'")
    for attempt in range(1, _LOCK_TRIES + 1):
        try:
            tx.script(statement)
            break
        except pg.LockNotAvailable:
            if attempt == _LOCK_TRIES:
                raise
    tx.script("set lock_timeout = 0")


def _named(relation: Relation) -> str:
    return f"{quoted(relation['schema'])}.{quoted(relation['name'])}"
