"""No text becomes markup by mistake."""

from datetime import UTC, datetime, timedelta
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.markup import Markup, element, joined, section, spaced, table, time_of

NOW = datetime(2026, 11, 30, 23, 48, 24, tzinfo=UTC)


class Read(HTMLParser):
    """What a browser makes of it: the elements that begin, with their attributes, and the text."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.begun: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.begun.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text(), st.text())
def test_text_stays_text_wherever_it_is_put(text: str, other: str) -> None:
    """In an element, in an attribute, and deep within others."""
    read = Read(element("p", element("b", text), other, data_it=other))

    assert [tag for tag, _ in read.begun] == ["p", "b"]
    # WHY both unescaped: a parser may read a text like "&lt" in an attribute in its own way.
    assert read.begun[0][1] == {"data-it": unescape(element("x", other)[3:-4])}
    assert "<" not in joined([text, other])
    assert '"' not in joined([text, other])


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", '" onload="x', "a & b", "'", "\0"])
def test_what_means_something_is_escaped(text: str) -> None:
    written = element("p", text, title=text)

    assert Read(written).begun[0][0] == "p"
    assert len(Read(written).begun) == 1
    assert "<script" not in written
    assert '" onload' not in written


def test_markup_is_taken_as_it_is_and_only_once() -> None:
    inner = element("b", "<")

    assert element("p", inner, "<") == "<p><b>&lt;</b>&lt;</p>"
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'
    assert element("p", class_="a b", aria_label="c") == '<p class="a b" aria-label="c"></p>'
    assert isinstance(joined([inner]), Markup)


def test_section_is_found_by_its_heading() -> None:
    read = Read(section("jobs", "Jobs & more", "text"))

    assert read.begun[0] == ("section", {"aria-labelledby": "jobs"})
    assert read.begun[1] == ("h2", {"id": "jobs"})
    assert read.text == "Jobs & moretext"


def test_table_names_its_columns_its_rows_and_itself() -> None:
    read = Read(table("<All>", ("Job", "When"), [("reap", "now"), ("flip", element("b", "x"))]))
    scopes = [a["scope"] for tag, a in read.begun if tag == "th"]

    assert [tag for tag, _ in read.begun][:2] == ["table", "caption"]
    assert scopes == ["col", "col", "row", "row"]
    assert [a["data-label"] for tag, a in read.begun if tag == "td"] == ["When", "When"]
    roles = {tag: a["role"] for tag, a in read.begun if "role" in a}
    assert roles == {
        "table": "table",
        "thead": "rowgroup",
        "tbody": "rowgroup",
        "tr": "row",
        "th": "rowheader",
        "td": "cell",
    }


def test_row_with_a_cell_too_few_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        table("All", ("Job", "When", "Did"), [("reap", "now")])


@pytest.mark.parametrize(
    ("ago", "text"),
    [
        (timedelta(0), "23:48:24"),
        (timedelta(hours=11, minutes=59), "11:49:24"),
        (timedelta(hours=12), "2026-11-30 11:48:24"),
        (timedelta(days=-1), "2026-12-01 23:48:24"),
    ],
)
def test_time_has_its_date_where_it_is_not_about_now(ago: timedelta, text: str) -> None:
    written = time_of(NOW - ago, NOW)

    assert Read(written).text == text
    assert Read(written).begun == [("time", {"datetime": f"{NOW - ago:%Y-%m-%dT%H:%M:%SZ}"})]


def test_spaced_pieces_are_words() -> None:
    assert joined(spaced([Markup("a"), Markup("b")])) == "a b"
    assert spaced([]) == []
