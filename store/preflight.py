"""Look before a command acts: is this a ledger, is it whole, and may we do that here.

A scheduled job meets the same faults in its statements. By hand they are found before anything is
begun, so that a command that cannot work changes nothing and says why in one sentence. What is
needed stands in `store.needs`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from store.database import Database, Transaction
from store.errors import PrivilegeMissing, StoreUnusable
from store.migrate import shipped
from store.needs import Needs
from store.records import COLUMNS
from store.statements import OWN_SCHEMA

LEDGER: Final[Mapping[str, tuple[str, ...]]] = {
    "background_agents": COLUMNS,
    "checkpoints": ("scope", "token", "status", "expires_at", "updated_at", "content"),
    "agent_sessions": ("scope", "session_id", "updated_at", "content"),
}
_VERSIONS: Final = "schema_migrations"
_SEE_SCHEMA: Final = "check MAINT_DATABASE_URL and MAINT_LEDGER_SCHEMA"
_MIGRATE: Final = "run `sema-maintenance migrate`"


def check(database: Database, needs: Needs) -> None:
    """Raise StoreUnusable, naming what is missing and the remedy, unless the needs are met.

    Connects where nobody has yet, and so raises StoreUnavailable as well. Changes nothing.
    """
    schema = database.statements.ledger_schema
    wanted = [(schema, *each.split()) for each in needs.ledger]
    wanted += [(OWN_SCHEMA, *each.split()) for each in needs.own]
    versioned = bool(needs.own) and needs.versioned
    if versioned:
        wanted.append((OWN_SCHEMA, _VERSIONS, "SELECT"))
    with database.transaction(read_only=True) as tx:
        [server] = tx.rows("preflight_server")
        if needs.writes:
            _check_writable(standby=server["standby"], read_only=server["read_only"])
        found = _relations(tx, [(schema_, table) for schema_, table, *_ in wanted])
        for schema_, table, *privileges in wanted:
            row = found.get((schema_, table))
            if row is None:
                raise StoreUnusable(_missing(schema_, table))
            _check_privileges(schema_, table, privileges, row["privileges"], server["role"])
            if schema_ != OWN_SCHEMA:
                _check_columns(schema_, table, row["columns"])
        if versioned:
            [applied] = tx.rows("preflight_migration")
            if applied["version"] < shipped()[-1].version:
                raise StoreUnusable(
                    f"the worker's own tables are older than this release; {_MIGRATE}"
                )


def missing_ledger_tables(database: Database) -> list[str]:
    """Those of the server's tables that the ledger's schema does not have."""
    schema = database.statements.ledger_schema
    with database.transaction(read_only=True) as tx:
        found = _relations(tx, [(schema, table) for table in LEDGER])
    return [table for table in LEDGER if (schema, table) not in found]


def _relations(
    tx: Transaction, wanted: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], Mapping[str, Any]]:
    params = {
        "schemas": [schema for schema, _ in wanted],
        "names": [table for _, table in wanted],
    }
    rows = tx.rows("preflight_relations", params)
    return {(row["schema"], row["name"]): row for row in rows}


def _check_writable(*, standby: bool, read_only: bool) -> None:
    if standby:
        raise StoreUnusable(
            "the database is read-only: it is a standby; name the primary in MAINT_DATABASE_URL"
        )
    if read_only:
        raise StoreUnusable(
            "the database is read-only: default_transaction_read_only is on for this role or "
            "database; switch it off, or name another in MAINT_DATABASE_URL"
        )


def _missing(schema: str, table: str) -> str:
    if schema == OWN_SCHEMA:
        return f"the worker's own tables are missing (no {schema}.{table}); {_MIGRATE}"
    return (
        f"there is no table {table} in schema {schema}; {_SEE_SCHEMA}, or make an empty ledger "
        "with `sema-maintenance migrate --create-ledger`"
    )


def _check_columns(schema: str, table: str, columns: Collection[str]) -> None:
    lacking = [column for column in LEDGER[table] if column not in columns]
    if lacking:
        raise StoreUnusable(
            f"table {table} in schema {schema} has no column {', '.join(lacking)}; {_SEE_SCHEMA}, "
            "and that the server which writes it is recent enough"
        )


def _check_privileges(
    schema: str, table: str, wanted: Sequence[str], held: Collection[str], role: str
) -> None:
    lacking = [privilege for privilege in wanted if privilege not in held]
    if lacking:
        raise PrivilegeMissing(
            f"role {role} lacks the privilege {', '.join(lacking)} on {schema}.{table}; "
            "grant it (and USAGE on the schema), or connect as another role",
            role,
        )
