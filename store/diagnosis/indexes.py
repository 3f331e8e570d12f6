"""The indexes: those that the jobs look rows up by, and those that make every heartbeat dear."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from store.diagnosis.finding import Examined, Finding, not_made, ok, warning
from store.diagnosis.schema import OWN, OWN_TABLE, not_looked_at, relations
from store.indexes import shipped_indexes
from store.migrate import shipped
from store.statements import quoted

_AGENTS: Final = "background_agents"
_OWN_INDEX: Final = re.compile(
    r"create (?:unique )?index (?:concurrently )?(\w+)\s+on maintenance\.(\w+)"
)
# From here on an update that touches only what such an index covers stays heap-only.
_BRIN_STAYS_HOT: Final = 160000
_BEHIND_A_VIEW: Final = (
    "the ledger is a view, whose indexes are on the table behind it under names of its own; "
    "`sema-maintenance migrate --indexes` prints those that it should have"
)


def _found(examined: Examined, table: str, schema: str) -> tuple[str | None, list[dict[str, Any]]]:
    relation = examined.tx.one("index_relation", {"schema": schema, "table": table})
    if relation is None:
        return None, []
    rows = examined.tx.rows("doctor_indexes", {"schemas": [schema], "names": [table]})
    return relation["kind"], rows


def _cannot(kind: str | None) -> Finding | None:
    if kind is None:
        return not_made(f"not looked at: there is no table {_AGENTS} here")
    return None if kind in {"r", "p"} else not_made(_BEHIND_A_VIEW)


def present(examined: Examined) -> Iterator[Finding]:
    """Whether the ledger has the indexes of this release, each finished."""
    kind, rows = _found(examined, _AGENTS, examined.schema)
    if (cannot := _cannot(kind)) is not None:
        yield cannot
        return
    valid = {row["index"]: row["valid"] for row in rows if row["table"] == _AGENTS}
    names = [index.name for index in shipped_indexes()]
    missing = [name for name in names if name not in valid]
    broken = [name for name in names if not valid.get(name, True)]
    remedy = "sema-maintenance migrate --indexes"
    if missing:
        yield warning(
            f"missing: {', '.join(missing)}; the jobs read the ledger whole instead, and may time "
            "out",
            remedy,
        )
    if broken:
        yield warning(
            f"never finished: {', '.join(broken)}; each write keeps it up and no read uses it",
            remedy,
        )
    if not (missing or broken):
        yield ok(f"all {len(names)} are there")


def own(examined: Examined) -> Iterator[Finding]:
    """Whether the worker's own tables have the indexes that its migrations made."""
    there = {name for schema, name in relations(examined) if schema == OWN}
    if not there:
        yield not_looked_at(OWN_TABLE)
        return
    # WHY not those of a table that is gone: it is spoken of by itself, and takes them along.
    wanted = [
        name
        for each in shipped()
        for name, table in _OWN_INDEX.findall(each.text)
        if table in there
    ]
    states = {
        name: examined.tx.one("index_state", {"schema": "maintenance", "index": name})
        for name in wanted
    }
    missing = [name for name, state in states.items() if state is None]
    broken = [name for name, state in states.items() if state is not None and not state["valid"]]
    if missing:
        yield warning(
            f"missing: {', '.join(missing)}; somebody dropped what a migration made, or it was not "
            "applied",
            "sema-maintenance migrate    # where a migration is missing; else make them by hand",
        )
    for name in broken:
        yield warning(
            f"never finished: {name}", f"reindex index concurrently maintenance.{quoted(name)};"
        )
    if not (missing or broken):
        yield ok(f"all {len(wanted)} are there")


def heartbeat(examined: Examined) -> Iterator[Finding]:
    """Whether any index names what a heartbeat changes, so that each one rewrites every index."""
    kind, rows = _found(examined, _AGENTS, examined.schema)
    if (cannot := _cannot(kind)) is not None:
        yield cannot
        return
    [server] = examined.tx.rows("doctor_server")
    hot_brin = server["version_number"] >= _BRIN_STAYS_HOT
    hurting = [
        row
        for row in rows
        # WHY not its parts: they go with the whole one.
        if row["renewed"] and not row["is_part"] and not (hot_brin and row["method"] == "brin")
    ]
    for row in hurting:
        where = f"{quoted(row['schema'])}.{quoted(row['index'])}"
        table = f"{quoted(row['schema'])}.{quoted(row['table'])}"
        # WHY not concurrently there: Postgres refuses it for the index of a partitioned table.
        plainly = row["is_whole"]
        remedy = (
            f"alter table {table} drop constraint {quoted(row['constraint'])};"
            if row["constraint"]
            else f"drop index {'' if plainly else 'concurrently '}{where};"
        )
        yield warning(
            f"index {row['index']} on {row['table']} names {', '.join(row['renewed'])}, which a "
            "heartbeat changes: no heartbeat can be a heap-only update, and every index grows",
            f"{remedy}    -- if no query needs it",
        )
    if not hurting:
        yield ok("no index names updated_at or rev")
