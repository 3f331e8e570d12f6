"""HTML made of elements, so that no text becomes markup by mistake."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

_VOID: Final = frozenset({"meta", "wbr"})
_NEAR: Final = timedelta(hours=12)


class Markup(str):
    """HTML; any other text is escaped where it is put into an element."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: str) -> Markup:
    """An element with its children, in order; `class_` and `for_` lose what Python asks of them.

    Names are ours and not escaped; an underscore in one of an attribute stands for a hyphen.
    """
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for key, value in attributes.items()
    )
    if name in _VOID:
        return Markup(f"<{name}{said}>")
    return Markup(f"<{name}{said}>{joined(children)}</{name}>")


def joined(children: Iterable[str]) -> Markup:
    """One piece of HTML after another."""
    return Markup(
        "".join(child if isinstance(child, Markup) else html.escape(child) for child in children)
    )


def table(
    caption: str,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
) -> Markup:
    """A table whose first column names its rows.

    WHY every role is spelled out: on a phone a row is laid out as a block under its name, and
    that takes from the elements the meaning that they have by themselves.
    """
    head = [element("th", text, scope="col", role="columnheader") for text in header]
    return element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *head, role="row"), role="rowgroup"),
        element("tbody", *(_row(header, row) for row in rows), role="rowgroup"),
        role="table",
    )


def section(name: str, heading: str, *children: str) -> Markup:
    """A part of the page under a heading, found by that heading."""
    title = element("h2", heading, id=name)
    return element("section", title, *children, aria_labelledby=name)


def line(*children: str, look: str = "") -> Markup:
    """A line of its own within a cell."""
    return element("span", *children, class_=f"line {look}".rstrip())


def even(text: str) -> Markup:
    """Words that stay on one line."""
    return element("span", text, class_="even")


def badge(text: str, look: str) -> Markup:
    """A word in a box; the colour only repeats what the word says."""
    return element("span", text, class_=f"badge {look}")


def spaced(pieces: Sequence[str]) -> list[str]:
    """The pieces as words of their own, also where they are read out or copied."""
    return [part for piece in pieces for part in (piece, " ")][:-1]


def time_of(when: datetime, now: datetime, *, dated: bool = False) -> Markup:
    """A time for a person; with its date where it is not about now."""
    near = abs(now - when) < _NEAR and not dated
    text = f"{when:%H:%M:%S}" if near else f"{when:%Y-%m-%d %H:%M:%S}"
    return element("time", text, datetime=f"{when:%Y-%m-%dT%H:%M:%SZ}")


def _row(header: Sequence[str], row: Sequence[str]) -> Markup:
    name, *rest = row
    cells = [
        # WHY a span: what stands beside the label must stay together in one column.
        element("td", element("span", text, class_="cell"), role="cell", data_label=label)
        for label, text in zip(header[1:], rest, strict=True)
    ]
    return element("tr", element("th", name, scope="row", role="rowheader"), *cells, role="row")
