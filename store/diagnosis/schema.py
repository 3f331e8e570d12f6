"""The tables: are they there, have they the columns and types, and may this role use them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from store.diagnosis.finding import Examined, Finding, error, not_made, ok, warning
from store.grants import grant
from store.migrate import shipped
from store.preflight import LEDGER
from store.statements import quoted

OWN: Final = "maintenance"
_VERSIONS: Final = "schema_migrations"
_MIGRATE: Final = "sema-maintenance migrate"
_BIGINT: Final = frozenset(
    {
        "rev",
        "writer_epoch",
        "spawned_at",
        "updated_at",
        "settled_at",
        "seq",
        "parked_at",
        "expires_at",
    }
)
_OTHERS: Final = {"session_scoped": "boolean", "content": "jsonb"}
# Text of a limited length holds what a server that set the limit writes there.
_AS_GOOD: Final = {"text": ("text", "character varying"), "bigint": ("bigint",)}
# Columns that are compared with each other.
_COMPARED: Final = (
    (("background_agents", "scope"), ("checkpoints", "scope")),
    (("background_agents", "parked_checkpoint_token"), ("checkpoints", "token")),
    (("background_agents", "scope"), ("agent_sessions", "scope")),
    (("background_agents", "session_id"), ("agent_sessions", "session_id")),
)
_KEYS: Final = ("scope", "handle", "token", "session_id")

_COMMENT: Final = re.compile(r"--[^\n]*")
_TABLE: Final = re.compile(r"create table maintenance\.(\w+) \(\n(.*?)\n\);", re.DOTALL)
_CHANGE: Final = re.compile(r"alter table maintenance\.(\w+)\s(.*?);", re.DOTALL)
_COLUMN: Final = re.compile(
    r"^ {4}(?!primary |unique |check |constraint )(\w+) +(\w+(?:\[\])?)", re.MULTILINE
)
_ADDED: Final = re.compile(r"add column (\w+) (\w+(?:\[\])?)")


def type_of(column: str) -> str:
    """Of which type a column of the ledger is to be."""
    return "bigint" if column in _BIGINT else _OTHERS.get(column, "text")


@cache
def own_columns() -> Mapping[str, Mapping[str, str]]:
    """The worker's own tables as this release's migrations leave them: types by column."""
    tables: dict[str, dict[str, str]] = {}
    for migration in shipped():
        text = _COMMENT.sub("", migration.text)
        for table, body in _TABLE.findall(text):
            tables[table] = dict(_COLUMN.findall(body))
        for table, changes in _CHANGE.findall(text):
            tables[table] |= dict(_ADDED.findall(changes))
    return tables


def relations(examined: Examined) -> dict[tuple[str, str], dict[str, Any]]:
    """Every relation of the ledger and of the worker's own that is there, with its columns."""
    wanted = [(examined.schema, table) for table in LEDGER]
    wanted += [(OWN, table) for table in own_columns()]
    rows = examined.tx.rows(
        "doctor_relations",
        {"schemas": [schema for schema, _ in wanted], "names": [name for _, name in wanted]},
    )
    return {(row["schema"], row["name"]): row for row in rows}


def there(examined: Examined) -> dict[str, bool]:
    """Which of the two families has any table here, by its schema."""
    schemas = {schema for schema, _ in relations(examined)}
    return {schema: schema in schemas for schema in (examined.schema, OWN)}


def not_looked_at(*missing: str) -> Finding:
    """Nothing can be said of what is not there."""
    return not_made(f"not looked at: there is no {' and no '.join(missing)} here")


LEDGER_TABLE: Final = "table of the ledger"
OWN_TABLE: Final = "table of the worker's own"


def migrations(examined: Examined) -> Iterator[Finding]:
    """Whether the worker's own tables are of this release."""
    known = shipped()
    applied = {row["version"]: row for row in examined.tx.rows("doctor_migrations")}
    missing = [f"{each.version:04}_{each.name}" for each in known if each.version not in applied]
    changed = [
        f"{each.version:04}"
        for each in known
        if each.version in applied and applied[each.version]["checksum"] != each.checksum
    ]
    newer = [f"{version:04}" for version in applied if version > known[-1].version]
    if missing:
        yield error(f"not applied: {', '.join(missing)}", _MIGRATE)
    if changed:
        yield error(
            f"migration {', '.join(changed)} of this release is not the one that was applied here",
            "install the release that made this database",
        )
    if newer:
        yield warning(
            f"a newer release was here and applied {', '.join(newer)}; this one goes on working",
            "replace the workers of this release when the upgrade is over",
        )
    if not (missing or changed or newer):
        yield ok(f"up to date, at {known[-1].version:04}_{known[-1].name}")


def tables(examined: Examined) -> Iterator[Finding]:
    """Whether every relation is there, and of a kind that can be worked on."""
    found = relations(examined)
    ledger = [table for table in LEDGER if (examined.schema, table) not in found]
    own = [table for table in own_columns() if (OWN, table) not in found]
    odd = [
        (row["schema"], row["name"], _KINDS[row["kind"]])
        for row in found.values()
        if row["kind"] in {"m", "f"}
    ]
    hidden = [row for row in found.values() if row["hidden"]]
    if ledger:
        yield error(
            f"schema {examined.schema} has no {', '.join(ledger)}; check MAINT_DATABASE_URL and "
            "MAINT_LEDGER_SCHEMA",
            "sema-maintenance migrate --create-ledger    # only where there is no server yet",
        )
    if own:
        yield error(f"schema {OWN} has no {', '.join(own)}", _MIGRATE)
    for schema, name, kind in odd:
        yield error(
            f"{schema}.{name} is a {kind}, which cannot be changed row by row under locks",
            "make it a table, or a view that only renames the columns of one",
        )
    for row in hidden:
        where = f"{quoted(row['schema'])}.{quoted(row['name'])}"
        yield error(
            f"row-level security of {row['schema']}.{row['name']} may hide rows from this role, "
            "and nobody would notice",
            f"alter role {quoted(row['role'])} bypassrls;    -- or a policy on {where} that lets "
            "it see every row",
        )
    if not (ledger or own or odd or hidden):
        kinds = sorted({_KINDS[found[examined.schema, table]["kind"]] for table in LEDGER})
        yield ok(
            f"all there: {len(LEDGER)} in schema {examined.schema} ({', '.join(kinds)}), "
            f"{len(own_columns())} in schema {OWN}"
        )


_KINDS: Final = {
    "r": "table",
    "p": "partitioned table",
    "v": "view",
    "m": "materialized view",
    "f": "foreign table",
}


def columns(examined: Examined) -> Iterator[Finding]:
    """Whether each column is there and of the type that the statements take it for."""
    found = relations(examined)
    wrong = False
    for (schema, name), row in found.items():
        is_own = schema == OWN and name in own_columns()
        wanted = own_columns()[name] if is_own else {c: type_of(c) for c in LEDGER[name]}
        there = {column["name"]: column["type"] for column in row["columns"]}
        lacking = [column for column in wanted if column not in there]
        if lacking:
            wrong = True
            yield error(
                f"{schema}.{name} has no column {', '.join(lacking)}",
                _MIGRATE if is_own else "update the server that writes the ledger, or the view",
            )
        for column, kind in wanted.items():
            if column in there and there[column] not in _AS_GOOD.get(kind, (kind,)):
                wrong = True
                yield _wrong_type(row, column, there[column], kind)
    if not found:
        yield not_looked_at(LEDGER_TABLE, OWN_TABLE)
    elif not wrong:
        yield ok("every column is there and of the type that is expected")


def _wrong_type(row: Mapping[str, Any], column: str, is_: str, expected: str) -> Finding:
    table = f"{quoted(row['schema'])}.{quoted(row['name'])}"
    remedy = (
        f"make the view {table} give {column}::{expected}"
        if row["kind"] == "v"
        else f"alter table {table} alter column {quoted(column)} type {expected} "
        f"using {quoted(column)}::{expected};    -- rewrites the table"
    )
    return error(f"{row['schema']}.{row['name']}.{column} is {is_}; {expected} is expected", remedy)


def collations(examined: Examined) -> Iterator[Finding]:
    """Whether keys are compared by what they are, and can be looked up in the other table."""
    of = {
        (row["name"], column["name"]): column
        for (schema, _), row in relations(examined).items()
        if schema == examined.schema
        for column in row["columns"]
    }
    if not of:
        yield not_looked_at(LEDGER_TABLE)
        return
    vague = [
        f"{table}.{column}"
        for (table, column), found in of.items()
        if column in (*_KEYS, "parked_checkpoint_token") and not found["deterministic"]
    ]
    if vague:
        yield error(
            f"{', '.join(vague)}: a collation that is not deterministic takes different keys for "
            "the same",
            'give these columns a deterministic collation, best "C"',
        )
    apart = []
    for ours, theirs in _COMPARED:
        if ours not in of or theirs not in of:
            continue
        first, second = of[ours]["collation"], of[theirs]["collation"]
        names = f"{'.'.join(ours)} ({first}) and {'.'.join(theirs)} ({second})"
        if first != second and "default" not in {first, second}:
            apart.append(error(f"{names} cannot be compared: Postgres refuses it", _SAME))
        elif first != second and ours[1] != "session_id":
            apart.append(warning(f"{names} differ: no index serves where they are compared", _SAME))
    yield from apart
    if not (vague or apart):
        yield ok("keys are compared alike in every table")


_SAME: Final = 'give both columns the same collation, best "C", and rebuild their indexes'


def privileges(examined: Examined) -> Iterator[Finding]:
    """Whether this role has what it needs for what the deployment is asked to do."""
    needs = examined.deployment.needs
    wanted = [(examined.schema, *each.split()) for each in needs.ledger]
    wanted += [(OWN, *each.split()) for each in (*needs.own, f"{_VERSIONS} SELECT")]
    params = {"schemas": [each[0] for each in wanted], "names": [each[1] for each in wanted]}
    rows = examined.tx.rows("preflight_relations", params)
    for behind in examined.tx.rows("doctor_behind_views", params):
        rows.append(behind)
        wanted += [
            (behind["schema"], behind["name"], *privileges)
            for _, table, *privileges in wanted
            if table == behind["view"]
        ]
    held = {(row["schema"], row["name"]): row["privileges"] for row in rows}
    [server] = examined.tx.rows("preflight_server")
    lacking = [
        (schema, table, missing)
        for schema, table, *privileges in wanted
        if (schema, table) in held
        and (missing := [p for p in privileges if p not in held[schema, table]])
    ]
    absent = [f"{schema}.{table}" for schema, table, *_ in wanted if (schema, table) not in held]
    if not held:
        yield not_looked_at(LEDGER_TABLE, OWN_TABLE)
        return
    if absent:
        yield not_made(f"not looked at, because they are not there: {', '.join(absent)}")
    elif not lacking:
        yield ok(f"role {server['role']} has all that is needed for: {examined.deployment.purpose}")
    if not lacking:
        return
    schemas = dict.fromkeys(schema for schema, *_ in lacking)
    usable = {row["schema"] for row in rows if row["privileges"]}
    said = ", ".join(
        f"{'/'.join(missing)} on {schema}.{table}" for schema, table, missing in lacking
    )
    remedies = [
        f"grant usage on schema {quoted(schema)} to {quoted(server['role'])};"
        for schema in schemas
        if schema not in usable
    ]
    remedies += [
        grant(missing, schema, table, server["role"]) for schema, table, missing in lacking
    ]
    yield error(f"role {server['role']} lacks {said}", *remedies)
