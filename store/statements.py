"""Reads the statements of `store/sql`, one per file, and names the ledger's schema in them.

In the files the server's tables are written `ledger.background_agents` and so on; `ledger` stands
for the schema that the settings name. `{name}` stands for the text of `fragments/name.sql`, so that
a predicate that must be the same in two statements is written once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import resources
from typing import Final

# The schema of the worker's own tables, in every database.
OWN_SCHEMA: Final = "maintenance"

_FRAGMENT = re.compile(r"\{(\w+)\}")
_LEDGER = re.compile(r"\bledger\.(?=\w)")
_ONE_ROW: Final = (
    "(select r.* from ledger.background_agents r"
    " where r.scope = %(row_scope)s and r.handle = %(row_handle)s)"
)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


@cache
def _text(path: str) -> str:
    return resources.files("store").joinpath("sql", path).read_text(encoding="utf-8")


def _expand(text: str, fragments: Mapping[str, str]) -> str:
    def replacement(match: re.Match[str]) -> str:
        name = match.group(1)
        if name in fragments:
            return fragments[name]
        return _expand(_COMMENT.sub("", _text(f"fragments/{name}.sql")).rstrip(), fragments)

    return _FRAGMENT.sub(replacement, text)


def quoted(identifier: str) -> str:
    """An SQL identifier in double quotes."""
    return '"' + identifier.replace('"', '""') + '"'


class Statements:
    """The statements of one ledger.

    `fragments` are texts that no file holds, such as lists of columns.
    """

    def __init__(self, ledger_schema: str, fragments: Mapping[str, str] | None = None) -> None:
        self.ledger_schema = ledger_schema
        self._prefix = quoted(ledger_schema) + "."
        self._fragments = dict(fragments or {})
        self._get = lru_cache(maxsize=None)(self._read)

    def __getitem__(self, name: str) -> bytes:
        """The statement in `sql/<name>.sql`, ready to execute."""
        return self._get(name)

    def filled(self, name: str, fragments: Mapping[str, str]) -> bytes:
        """The same with fragments that are known only now."""
        return self.named(_expand(_text(f"{name}.sql"), {**self._fragments, **fragments}))

    def over_one_row(self, name: str) -> bytes:
        """The same over a ledger that holds no agent but that of %(row_scope)s and %(row_handle)s.

        So a statement that counts a scope's rows says what it says of one of them.
        """
        text = _expand(_text(f"{name}.sql"), self._fragments)
        return self.named(text.replace("ledger.background_agents", _ONE_ROW))

    def named(self, text: str) -> bytes:
        """A statement with the ledger's schema named in full."""
        return _LEDGER.sub(lambda _: self._prefix, text).encode()

    def _read(self, name: str) -> bytes:
        return self.named(_expand(_text(f"{name}.sql"), self._fragments))
