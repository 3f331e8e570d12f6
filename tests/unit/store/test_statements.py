"""The statements as they are sent: fragments in place, the ledger's schema named in full."""

import re
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.database import Database
from store.records import COLUMNS
from store.statements import Statements, quoted

SQL = Path(str(resources.files("store").joinpath("sql")))
NAMES = sorted(
    path.relative_to(SQL).with_suffix("").as_posix()
    for path in SQL.rglob("*.sql")
    if path.parent.name != "fragments"
)
TABLES = ("background_agents", "checkpoints", "agent_sessions")
OURS = ("schedule", "runs", "run_parts", "journal", "session_releases", "memory_boundary")


@pytest.fixture(scope="module")
def statements() -> Statements:
    """The statements as a database has them; it is never connected to."""
    return Database("postgresql://nowhere.invalid/none", "the ledger").statements


def code(statement: bytes) -> str:
    """The statement without its comments."""
    return re.sub(r"--.*", "", statement.decode())


def test_every_statement_is_found() -> None:
    assert len(NAMES) > 30
    assert {"reap", "flip_stale_running", "reconcile_parked", "agent_put"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_no_fragment_is_left_to_fill_in(statements: Statements, name: str) -> None:
    assert not re.search(r"[{]\w+[}]", code(statements[name]))


@pytest.mark.parametrize("name", NAMES)
def test_every_table_is_named_in_full(statements: Statements, name: str) -> None:
    """No search_path can put another table in its place."""
    text = code(statements[name])

    for found in re.finditer(rf"\b({'|'.join(TABLES)})\b", text):
        assert text[: found.start()].endswith('"the ledger".'), found
    assert not re.search(r"\bledger\.", text)
    assert not re.search(rf"\b(from|join|into|update|using)\s+({'|'.join(OURS)})\b", text)


@pytest.mark.parametrize("name", NAMES)
def test_every_statement_says_what_it_is_for(statements: Statements, name: str) -> None:
    """The header is the review: a statement without one is not shipped."""
    assert statements[name].startswith(b"-- ")


@pytest.mark.parametrize("fragment", sorted(path.stem for path in (SQL / "fragments").iterdir()))
def test_every_fragment_is_part_of_a_statement(fragment: str) -> None:
    """What nothing includes is forgotten, and its comment stays in its own file."""
    users = [path for path in SQL.rglob("*.sql") if f"{{{fragment}}}" in path.read_text()]

    assert users


def test_a_fragment_is_filled_in_without_its_comment() -> None:
    """Also where a fragment includes another."""
    terminal = "a.status in ('completed', 'failed', 'killed')"
    text = Statements("public")["reap"].decode()

    assert f"and {terminal}\nand a.settled_at is not null" in text
    assert "-- Terminal rows at or before the last key" not in text


def test_a_name_may_be_given_instead_of_a_file() -> None:
    given = Statements("public", {"agent_columns": "a.one, a.two"})["agent_get"].decode()

    assert "select a.one, a.two\nfrom" in given


def test_every_column_of_the_record_is_written(statements: Statements) -> None:
    """A put writes all, an update all but the key, and the revision only from the row's own."""
    put = code(statements["agent_put"])
    update, _, _ = code(statements["agent_update"]).partition("\nwhere ")

    assert re.findall(r"%\((\w+)\)s", put) == list(COLUMNS)
    assigned = dict(re.findall(r"\b(\w+) = (a\.rev \+ 1|%\(\w+\)s)(?=,|$)", update))
    written = {name: value for name, value in assigned.items() if value != f"%({name})s"}
    assert written == {"rev": "a.rev + 1"}
    assert set(assigned) == set(COLUMNS) - {"scope", "handle"}


def test_a_statement_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        Statements("public")["nothing"]


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ("public", '"public".'),
        ("Ledger", '"Ledger".'),
        ("the ledger", '"the ledger".'),
        ('we"ird', '"we""ird".'),
        (r"back\slash\1", r'"back\slash\1".'),
        ("ledger.", '"ledger.".'),
        ("{terminal}", '"{terminal}".'),
        ("schéma", '"schéma".'),
    ],
)
def test_the_schema_is_an_identifier_whatever_it_is_called(schema: str, named: str) -> None:
    text = Statements(schema)["checkpoint_get"].decode()

    assert f"from {named}checkpoints c" in text
    assert Statements(schema).named("drop table ledger.x").decode() == f"drop table {named}x"


@given(st.text(min_size=1))
def test_a_quoted_identifier_is_one_identifier(name: str) -> None:
    """Nothing in a name can end it."""
    inner = quoted(name)[1:-1]

    assert quoted(name) == f'"{inner}"'
    assert inner.replace('""', "") == name.replace('"', "")
    assert inner.replace('""', '"') == name


def test_only_whole_words_name_the_ledger() -> None:
    """Another schema whose name ends in the same letters is another schema."""
    named = Statements("public").named("select my_ledger.a, ledger.b, ledger_b.c, 'ledger'")

    assert named == b"""select my_ledger.a, "public".b, ledger_b.c, 'ledger'"""
