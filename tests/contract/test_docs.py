"""What the documents name is there: files, headings, commands, variables and targets of make."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import psycopg
import pytest

from config.reference import settings_reference
from store.database import Database
from worker.cli.commands import sema_maintenance

CHECKOUT = Path(__file__).parents[2]
DOCUMENTS = sorted((CHECKOUT / "docs").rglob("*.md"))
_SETTINGS = {name for name, *_ in settings_reference()}


def anchors(document: Path) -> set[str]:
    """The names of its headings, as they stand in a link."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(document: Path) -> Iterator[str]:
    for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_names_is_there(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    commands = {*re.findall(r"(?:^|[`$ ])sema-maintenance ([a-z][a-z-]+)", text)}
    targets = re.findall(r"^[a-z-]+(?=:)", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)

    assert [*broken_links(document)] == []
    assert commands <= {*sema_maintenance.list_commands(click.Context(sema_maintenance))}
    assert {*re.findall(r"MAINT_[A-Z]+(?:_[A-Z]+)*", text)} <= {*_SETTINGS}
    assert {*re.findall(r"(?:`|\$ )make ([a-z-]+)", text)} <= {*targets}


def test_the_view_in_the_guide_is_a_ledger(plain_ledger: tuple[str, Database]) -> None:
    """It gives every column its name and type, and Postgres writes through it."""
    url, _ = plain_ledger
    guide = (CHECKOUT / "docs" / "production.md").read_text(encoding="utf-8")
    [statements] = re.findall(r"```sql\n(.*?)```", guide, re.DOTALL)
    renamed = re.findall(r"(\w+) as (\w+),", statements)
    columns = (
        "select column_name, udt_name from information_schema.columns"
        " where table_schema = %s and table_name = 'background_agents' order by 1"
    )

    with psycopg.connect(url) as connection:
        connection.execute("create schema agents")
        connection.execute("create table agents.ledger (like public.background_agents)")
        for theirs, ours in renamed:
            connection.execute(f"alter table agents.ledger rename {ours} to {theirs}".encode())
        connection.execute(statements.encode())
        seen, wanted = (
            connection.execute(columns, (schema,)).fetchall() for schema in ("sema_seen", "public")
        )
        writable = connection.execute(
            "select is_insertable_into from information_schema.tables"
            " where table_schema = 'sema_seen'"
        ).fetchall()
        connection.rollback()

    assert len(renamed) == 5
    assert seen == wanted
    assert writable == [("YES",)]
