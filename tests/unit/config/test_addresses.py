"""Which addresses are taken, each as the program that will use it reads it."""

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from config.addresses import (
    Address,
    database_url_problem,
    parse_address,
)
from config.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9464", Address("127.0.0.1", 9464)),
        ("0.0.0.0:0", Address("0.0.0.0", 0)),
        ("[::1]:9464", Address("::1", 9464)),
        ("[::]:65535", Address("::", 65535)),
        ("localhost:80", Address("localhost", 80)),
        ("exporter_1.internal.:80", Address("exporter_1.internal.", 80)),
    ],
)
def test_a_host_and_a_port_are_taken_apart_and_put_together(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "9464",
        ":9464",
        "localhost",
        "localhost:",
        "localhost:http",
        "localhost:65536",
        "localhost:-1",
        "localhost:٣",
        "localhost:000080",
        "::1:9464",
        "[::1]",
        "[::1:9464",
        "[localhost]:80",
        "[127.0.0.1]:80",
        "[:::1]:80",
        "127.0.0.256:80",
        "1.2.3:80",
        "a b:80",
        "*:80",
        "http://localhost:80",
        "local/host:80",
        "-a:80",
        "a" * 254 + ":80",
    ],
)
def test_what_is_no_address_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_address(text)

    message = str(refused.value)
    assert message.startswith(f'"{text[:80]}')
    assert "is not a host and a port" in message
    assert '"0.0.0.0:9464" for every interface' in message


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://",
        "postgres://h",
        "postgresql:///agents",
        "postgresql://u:p@h:5432/agents?sslmode=require&application_name=a",
        "postgresql://u:p%40%2F%3A%25@h/agents",
        "postgresql://u:p?x#y:z@h/agents",
        "postgresql://h1:5432,h2:5433,h3/agents?target_session_attrs=read-write",
        "postgresql://[::1]:5432/agents",
        "postgresql://%2Fvar%2Frun%2Fpostgresql/agents",
        "postgresql:///agents?host=/tmp&user=me@server",
        "postgresql://u:@h/",
        "host=db dbname=agents",
        "host = db  port = 5432",
        "host=db password='a b \\' c' dbname=agents",
        "password=a\\ b host=db",
        "dbname='' host=db",
        "service=agents",
    ],
)
def test_an_address_that_libpq_reads_is_taken(text: str) -> None:
    """Libpq is asked too, so that no list here can be wrong by itself."""
    assert conninfo_to_dict(text) is not None
    assert database_url_problem(text) is None


NEITHER = "is neither a Postgres URL nor libpq keywords"
NOT_SPLIT = "cannot be split into user, host, port and database"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("agents", NEITHER),
        ("localhost/agents", NEITHER),
        ("sqlite:///s3cret", NEITHER),
        ("postgresql+psycopg://u:s3cret@h/db", NEITHER),
        ("POSTGRESQL://u:s3cret@h/db", NEITHER),
        ("host=h password='s3cret", NEITHER),
        ("host=h password=two s3cret", NEITHER),
        ("host=h, password=x;s3cret y", NEITHER),
        ("=s3cret", NEITHER),
        ("postgresql://u:s3cret%zz@h/db", "has a % without two hexadecimal digits"),
        ("postgresql://u:s3cret%@h/db", "has a % without two hexadecimal digits"),
        ("postgresql://u:s3cret@x@h/db", NOT_SPLIT),
        ("postgresql://u:s3cret/x@h/db", NOT_SPLIT),
        ("postgresql://u:a/s3cret", NOT_SPLIT),
        ("postgresql://u:s3cret x@h/db", NOT_SPLIT),
        ("postgresql://u:s3cret@h:port/db", NOT_SPLIT),
        ("postgresql://u:s3cret@h:70000/db", NOT_SPLIT),
        ("postgresql://u:s3cret@h:5432:5433/db", NOT_SPLIT),
        ("postgresql://u:s3cret@[::1/db", NOT_SPLIT),
        ("postgresql://h/db?password=s3cret=", NOT_SPLIT),
        ("postgresql://h/db?s3cret", NOT_SPLIT),
    ],
)
def test_a_bad_database_address_is_described_but_never_quoted(text: str, why: str) -> None:
    """Libpq itself would quote the very part that it cannot read: a piece of the password."""
    problem = database_url_problem(text)

    assert problem is not None
    assert problem.startswith(why)
    assert "; " in problem
    assert "s3cret" not in problem


def complaint_of_libpq(address: str) -> str:
    """What libpq says against an address; nothing when it can read it."""
    try:
        conninfo_to_dict(address)
    except psycopg.Error as error:
        return str(error)
    return ""


PIECES = ["u", "h", ":", "5432", "/", "@", "%", "%40", "?", "&", "=", "[::1]", ",", "'", "\\", " "]


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_whatever_is_taken_libpq_can_split(text: str) -> None:
    """Its complaints quote what it was given, so that none may be left to it.

    But for the names of options, which are for libpq to know.
    """
    for address in (f"postgresql://{text}", f"host={text}"):
        if database_url_problem(address) is None:
            complaint = complaint_of_libpq(address)
            assert not complaint or complaint.startswith(
                ("invalid URI query parameter", "invalid connection option")
            )
