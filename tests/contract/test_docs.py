"""What the documents name is there: files, headings, commands, variables and targets of make."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from config.settings import settings_reference
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
