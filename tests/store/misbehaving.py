"""Rows that cannot be written, or take long: triggers and keys on whatever table a ledger is."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from store.database import Database

# What a handle has in it, and what becomes of who writes that row. A poisoned one may name the code
# of its error.
_BEHAVIOUR = """
create function public.misbehave() returns trigger language plpgsql as $$
declare
    handle text := coalesce(to_jsonb(old) ->> 'handle', to_jsonb(old) ->> 'agent_key');
begin
    if handle like '%poisoned%' then
        raise exception 'this row may not be written'
            using errcode = coalesce(substring(handle from 'poisoned ([0-9A-Z]{5})'), 'P0001');
    elsif handle like '%stuck%' then
        perform pg_sleep(60);
    elsif handle like '%slow%' then
        perform pg_sleep(0.02);
    end if;
    return case when tg_op = 'DELETE' then old else new end;
end $$
"""


def table_of(database: Database) -> str:
    """The agents' table itself, where the ledger is a view."""
    schema = database.statements.ledger_schema
    return f"{'kept' if schema == 'seen' else schema}.background_agents"


def key_of(database: Database) -> str:
    """The columns of its key."""
    return "tenant, agent_key" if database.statements.ledger_schema == "seen" else "scope, handle"


@contextmanager
def misbehaving(url: str, database: Database) -> Iterator[psycopg.Connection]:
    """While this lasts, rows named poisoned, stuck and slow are; gives a connection beside it."""
    table = table_of(database)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_BEHAVIOUR.encode())
        connection.execute(
            f"create trigger misbehave before update or delete on {table}"
            " for each row execute function public.misbehave()".encode()
        )
        try:
            yield connection
        finally:
            connection.execute(f"drop trigger misbehave on {table}".encode())
            connection.execute(b"drop function public.misbehave()")
