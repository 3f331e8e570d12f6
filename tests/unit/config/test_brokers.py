"""Which addresses of brokers are taken: those that kombu can do something with, and no others."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kombu import Connection
from kombu.utils.url import url_to_parts

from config.brokers import broker_place, broker_url_problem, with_small_schemes
from worker.transports import install

TLS = "ssl_ca_certs=/ca.pem&ssl_certfile=/c.pem&ssl_keyfile=/k.pem"
TAKEN = [
    "memory://",
    "redis://h",
    "redis://h/",
    "redis://h//",
    "redis://h:6379/0",
    "redis://h//5",
    "redis://h/2147483647",
    "redis://[::1]:6379/0",
    "redis://u:p@ss@h",
    "REDIS://h",
    "rediss://:p%40%2F@h:6380/1?ssl_cert_reqs=required",
    "rediss://h?ssl_cert_reqs=optional&ssl_check_hostname=false",
    "rediss://h?ssl_cert_reqs=none",
    f"rediss://h/0?ssl_cert_reqs=CERT_REQUIRED&{TLS}",
    "amqp://h",
    "amqp://h/",
    "amqp://u:p@h:5672//",
    "amqp://h/%2F",
    "amqp://h/a/b",
    "amqp://h/" + "v" * 255,
    "amqp://h?heartbeat=10&login_method=PLAIN",
    "amqps://u:p@broker.internal./vhost",
    "AmqpS://h",
    "amqp://u:p@one:5672//;amqp://u:p@two:5672//",
]


@pytest.mark.parametrize("text", TAKEN)
def test_a_broker_that_the_worker_speaks_is_taken(text: str) -> None:
    assert broker_url_problem(text) is None


@pytest.fixture(scope="module")
def closed() -> Iterator[int]:
    """A port at which nobody listens, and nobody can while it is bound."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def how_it_ends(url: str) -> str:
    """What connecting once raises, if it is no trouble with the connection."""
    install()
    connection: Any = Connection(url, connect_timeout=2)
    expected = (OSError, *connection.connection_errors, *connection.channel_errors)
    try:
        transport = connection.transport
        transport.create_channel(transport.establish_connection())
    except expected:
        return ""
    except Exception as unexpected:  # noqa: BLE001 - the question is which
        return repr(unexpected)
    return ""


PIECES = ["/", "0", "7", "%2F", "x", "?", "heartbeat=", "ssl_cert_reqs=", "none", "&", "+", "%zz"]


@given(
    st.sampled_from(["redis", "rediss", "amqp", "amqps", "AMQP"]),
    st.lists(st.sampled_from(PIECES), max_size=7).map("".join),
)
def test_whatever_is_taken_fails_only_for_its_connection(
    closed: int, scheme: str, rest: str
) -> None:
    """Any other error would end a worker with a traceback, or try for ever what cannot succeed."""
    url = f"{scheme}://127.0.0.1:{closed}{rest}"
    if broker_url_problem(url) is None:
        assert how_it_ends(with_small_schemes(url)) == ""


NOT_SPLIT = "cannot be split into user, host, port and name"
HOST = "has a host that is neither a name nor an IP address"
PORT = "has a port that is not from 1 to 65535"
DATABASE = "has a database that is not a number from 0 to 2147483647"
PERCENT = "has a % without two hexadecimal digits after it"
OPTION = "has an option that "


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("broker:6379", "does not begin with a scheme such as redis://"),
        ("s3cret", "does not begin with a scheme such as redis://"),
        ("redis:/broker", "does not begin with a scheme such as redis://"),
        ("redis://h;s3cret", "does not begin with a scheme such as redis://"),
        ("valkey://:s3cret@h", 'has the scheme "valkey", which is none of memory, redis, rediss'),
        ("sqla+sqlite:///s3cret", 'has the scheme "sqla+sqlite"'),
        ("http://u:s3cret@h", 'has the scheme "http"'),
        ("redis://:s3cret@h:port", NOT_SPLIT),
        ("redis://:s3cret@h:+5", NOT_SPLIT),
        ("redis://:s3cret@[::1]x", NOT_SPLIT),
        ("redis://:s3cret/x@h", NOT_SPLIT),
        ("redis://:s3cret?x@h", NOT_SPLIT),
        ("redis://:s3cret#x@h", NOT_SPLIT),
        ("amqp://u/s3cret:p@h", NOT_SPLIT),
        ("amqp://u:s3cret @h", NOT_SPLIT),
        ("amqp://u:s3cret@[h/", NOT_SPLIT),
        ("redis://h/0#s3cret", "has a #, behind which nothing is read"),
        ("redis://:s3cret%@h", PERCENT),
        ("redis://u%zz:s3cret@h", PERCENT),
        ("redis://:s3cret@h%zz", PERCENT),
        ("redis://:s3cret@h/%zz", PERCENT),
        ("redis://:s3cret%ff@h", "holds what is no UTF-8 text"),
        ("redis://:s3cret\udcff@h", "holds what is no UTF-8 text"),
        ("redis://", "names no host"),
        ("amqp://:s3cret@:5672//", "names no host"),
        ("redis://h;amqp:///v", "names no host"),
        ("redis://:s3cret@a..b", HOST),
        ("redis://:s3cret@" + "a" * 64, HOST),
        ("amqp://u:s3cret@%41/", HOST),
        ("redis://:s3cret@h:0", PORT),
        ("redis://:s3cret@h:70000", PORT),
        *[
            (f"redis://:s3cret@h/{name}", DATABASE)
            for name in (
                "x",
                "0/",
                "//",
                "-1",
                "+1",
                "1_0",
                "\N{FULLWIDTH DIGIT ONE}",
                "2147483648",
                "%20",
            )
        ],
        ("amqp://u:s3cret@h/" + "v" * 256, "has a virtual host of more than 255 bytes"),
        ("amqp://u:s3cret@h/" + "%C3%A9" * 128, "has a virtual host of more than 255 bytes"),
        *[
            (f"{scheme}://:s3cret@h?{name}", OPTION)
            for scheme, name in (
                ("redis", "foo=1"),
                ("redis", "socket_timeout=5"),
                ("redis", "s3cret"),
                ("redis", "heartbeat=5"),
                ("redis", "credential_provider=os.path"),
                ("rediss", "ssl_bogus=1"),
                ("amqp", "x=1"),
                ("amqp", "hostname=x"),
                ("amqp", "transport=x"),
                ("amqp", "ssl=1"),
                ("amqps", "ssl_cert_reqs=none"),
            )
        ],
        ("amqp://:s3cret@h?heartbeat=a", "has a value of heartbeat that cannot be used"),
        ("amqp://:s3cret@h?heartbeat=", "has a value of heartbeat that cannot be used"),
        ("amqp://:s3cret@h?login_method=FOO", "has a value of login_method that cannot be used"),
        ("rediss://:s3cret@h?ssl_cert_reqs=bogus", "has a value of ssl_cert_reqs that cannot be"),
        ("rediss://:s3cret@h?ssl_ca_certs=%00", "has a value of ssl_ca_certs that cannot be used"),
        ("rediss://:s3cret@h?ssl_keyfile=/k", "has ssl_keyfile and no ssl_certfile"),
        ("memory://?x=s3cret", "has options, and memory:// knows none"),
    ],
)
def test_a_bad_broker_address_is_described_but_never_quoted(text: str, why: str) -> None:
    problem = broker_url_problem(text)

    assert problem is not None
    assert problem.startswith(why)
    assert "; " in problem
    assert "s3cret" not in problem


SPLIT = ["u", "h", ":", "5672", "/", "@", "%", "%40", "?", "&", "=", "[::1]", ",", "'", "\\", " "]


@given(st.lists(st.sampled_from([*SPLIT, ";redis://", "#"]), max_size=14).map("".join))
def test_whatever_is_taken_kombu_can_split(text: str) -> None:
    """Kombu reads the address again when it connects, and fails with pieces of it in the error."""
    address = f"redis://{text}"
    if broker_url_problem(address) is None:
        for url in address.split(";"):
            parts = url_to_parts(url)
            assert parts.scheme == "redis"
            assert parts.hostname


def test_schemes_are_read_in_small_letters() -> None:
    """Everything else of an address is as it was written."""
    assert with_small_schemes("AMQP://U:P@H//;Redis://H/0") == "amqp://U:P@H//;redis://H/0"


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("memory://", "memory://"),
        ("redis://broker:6379/0", "redis://broker:6379/0"),
        ("rediss://:oyster@broker/0?ssl_password=oyster", "rediss://broker/0"),
        ("amqps://sema:oyster@[::1]:5671//", "amqps://[::1]:5671//"),
        ("amqp://a:oyster@b1/v;amqp://a:oyster@b2/v", "amqp://b1/v;amqp://b2/v"),
    ],
)
def test_place_of_a_broker_has_no_user_and_no_password(url: str, place: str) -> None:
    assert broker_url_problem(url) is None
    assert broker_place(url) == place
