"""The memory boundary warnings in force, kept where every process can show them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from store.database import Database


class Found(Protocol):
    """One warning of an audit."""

    @property
    def tag(self) -> str:
        """Its name in logs and metrics."""

    @property
    def detail(self) -> str:
        """The sentence for a person."""


def replace(database: Database, found: Iterable[Found], now: int) -> None:
    """Keep what an audit found in place of what the one before found."""
    with database.transaction() as tx:
        tx.do("memory_boundary_clear")
        for warning in found:
            tx.do(
                "memory_boundary_add",
                {"tag": warning.tag, "detail": warning.detail, "now": now},
            )


def in_force(database: Database) -> dict[str, str]:
    """The sentence of each warning in force, by tag."""
    with database.transaction(read_only=True) as tx:
        return {row["tag"]: row["detail"] for row in tx.rows("memory_boundary_list")}
