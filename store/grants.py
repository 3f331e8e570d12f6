"""The least privilege as SQL: what a role is granted so that it can do its part, and no more.

Nothing here asks the database: neither the role nor the tables need be there yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from store.errors import StoreUnusable
from store.needs import Needs
from store.statements import quoted

OWN: Final = "maintenance"
_VERSIONS: Final = "schema_migrations SELECT"
_NAME_BYTES_MAX: Final = 63
# WHY refused even in quotes: to GRANT they are not the name of a role, or whoever writes one means
# what it is without them.
_NO_ROLES: Final = ("public", "none", "current_user", "current_role", "session_user")


def privileges(needs: Needs, ledger_schema: str) -> list[tuple[str, str, list[str]]]:
    """Each table that is needed as (schema, table, privileges)."""
    versions = [_VERSIONS] if needs.own and needs.versioned else []
    named = [(ledger_schema, each) for each in needs.ledger]
    named += [(OWN, each) for each in (*needs.own, *versions)]
    return [(schema, table, held) for schema, each in named for table, *held in [each.split()]]


def statements(needs: Needs, ledger_schema: str, role: str) -> list[str]:
    """What to run as the owner of the tables, once they are there. Raises StoreUnusable.

    WHY no sequences: what the worker inserts is numbered by identity columns, which ask for none.
    WHY no partitions, and nothing behind a view: Postgres asks for the privileges of what a
    statement names (behind a view with security_invoker, for those of the table as well).
    """
    _check(role)
    listed = privileges(needs, ledger_schema)
    schemas = dict.fromkeys(schema for schema, *_ in listed)
    usage = [f"grant usage on schema {quoted(schema)} to {quoted(role)};" for schema in schemas]
    return usage + [grant(held, schema, table, role) for schema, table, held in listed]


def grant(held: Iterable[str], schema: str, table: str, role: str) -> str:
    """One statement that grants privileges on one table."""
    named = ", ".join(each.lower() for each in held)
    return f"grant {named} on {quoted(schema)}.{quoted(table)} to {quoted(role)};"


def seeing_other_sessions(role: str) -> str:
    """The statement that lets a role see what sessions of other roles are at."""
    return f"grant pg_read_all_stats to {quoted(role)};"


def _check(role: str) -> None:
    """Refuse what Postgres would take for something else than this role."""
    if not role or role.lower() in _NO_ROLES or role.startswith("pg_"):
        raise StoreUnusable(f"{role!r} cannot be the name of a role of yours; name another")
    if not role.isprintable():
        raise StoreUnusable("the name of the role holds a character that cannot be printed")
    if _bytes(role) > _NAME_BYTES_MAX:
        raise StoreUnusable(
            f"the name of the role is longer than {_NAME_BYTES_MAX} bytes, which Postgres would "
            "cut; name one that exists"
        )


def _bytes(text: str) -> int:
    return len(text.encode(errors="replace"))
