"""Addresses of message brokers, checked before kombu reads them.

What is wrong with one never quotes it, since it may hold a password. It is checked here in full:
what kombu cannot read it tells by errors of every kind, some of them at each attempt to connect,
and with pieces of the address in them.
"""

import ipaddress
import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, unquote_to_bytes, urlsplit

from config.errors import shown

SCHEMES: Final = ("memory", "redis", "rediss", "amqp", "amqps")
_EXAMPLES: Final = '"redis://broker:6379/0" (also for Valkey) or "amqp://user@broker:5672//"'
_NOT_SPLIT: Final = (
    "cannot be split into user, host, port and name; in a user name, a password or a name write "
    "@ as %40, / as %2F and : as %3A"
)
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://")
_BARE_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NOT_PRINTED: Final = re.compile(r"[\s\x00-\x1f\x7f]")
# Whoever logs in, the host, the port: each as kombu takes them apart.
_PLACE: Final = re.compile(
    r"(?:(?P<login>.*)@)?(?P<host>\[[^\[\]]*\]|[^\[\]:@]*)(?::(?P<port>[0-9]*))?", re.DOTALL
)
_HOST: Final = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_-](?:[A-Za-z0-9_.-]*)")
_PORT_MAX: Final = 65535
_VHOST_BYTES_MAX: Final = 255
# Of Redis: it has no numbers above.
_DB: Final = re.compile(r"/?(?P<number>[0-9]{0,10})", re.ASCII)
_DB_MAX: Final = 2**31 - 1

# What may stand behind the ?, and how its value is written.
_ANY: Final = re.compile(r"[^\x00-\x1f\x7f]+")
_TLS: Final = {
    "ssl_cert_reqs": re.compile(r"CERT_(?:REQUIRED|OPTIONAL|NONE)|required|optional|none"),
    "ssl_check_hostname": re.compile(r"(?i:true|false)"),
    "ssl_ca_certs": _ANY,
    "ssl_ca_path": _ANY,
    "ssl_certfile": _ANY,
    "ssl_keyfile": _ANY,
    "ssl_password": _ANY,
    "ssl_ciphers": _ANY,
}
_AMQP: Final = {
    "heartbeat": re.compile(r"[0-9]{1,4}", re.ASCII),
    "login_method": re.compile(r"PLAIN|AMQPLAIN"),
}
_OPTIONS: Final = {"memory": {}, "redis": _TLS, "rediss": _TLS, "amqp": _AMQP, "amqps": _AMQP}


class _Parts(NamedTuple):
    """One address as kombu will take it apart; all but the scheme still escaped."""

    scheme: str
    login: str
    host: str
    port: str
    path: str
    query: str


def broker_url_problem(text: str) -> str | None:
    """What is wrong with a broker's address, and what to do; None when nothing.

    Several, separated by semicolons, are tried one after the other, as kombu does.
    """
    for url in text.split(";"):
        problem = _problem(url)
        if problem is not None:
            return problem
    return None


def with_small_schemes(text: str) -> str:
    """The same address with each scheme in small letters. The text is one without a problem."""
    return ";".join(_SCHEME.sub(lambda it: it[0].lower(), url, 1) for url in text.split(";"))


def broker_place(text: str) -> str:
    """Where a broker's address leads: scheme, host, port and name, without user and password.

    Of several, separated by semicolons, all. The text is one without a problem.
    """
    places = []
    for url in text.split(";"):
        scheme, _, rest = url.partition("://")
        parts = urlsplit(f"http://{rest}")
        places.append(f"{scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")
    return ";".join(places)


def names_a_login(broker_url: str) -> bool:
    """Whether a broker's address holds a user or a password. The text is one without a problem."""
    urls = broker_url.split(";")
    return any("@" in urlsplit(f"http://{url.partition('://')[2]}").netloc for url in urls)


def is_text(login: str) -> bool:
    """Whether a user or a password can be written into an address: the environment holds bytes."""
    try:
        login.encode()
    except UnicodeError:
        return False
    return True


def broker_url_for(text: str, user: str | None, password: str | None) -> str:
    """A broker's address, or several, with this user and password put in, whatever they hold."""
    if user is None and password is None:
        return text
    login = quote(user or "", safe="")
    if password is not None:
        login += f":{quote(password, safe='')}"
    return ";".join(url.replace("://", f"://{login}@", 1) for url in text.split(";"))


def _problem(url: str) -> str | None:
    scheme = _SCHEME.match(url)
    if scheme is None:
        return f"does not begin with a scheme such as redis://; write {_EXAMPLES}"
    if scheme[1].lower() not in SCHEMES:
        return (
            f"has the scheme {shown(scheme[1])}, which is none of {', '.join(SCHEMES)}; "
            f"write {_EXAMPLES}"
        )
    parts = _taken_apart(scheme[1].lower(), url[scheme.end() :])
    if parts is None:
        return _NOT_SPLIT
    return (
        _escapes_problem(url)
        or _host_problem(parts)
        or _name_problem(parts)
        or _options_problem(parts)
    )


def _taken_apart(scheme: str, rest: str) -> _Parts | None:
    """None where it would not be read as it is meant: kombu reads it with the rules of http."""
    if _NOT_PRINTED.search(rest):
        return None
    try:
        parts = urlsplit(f"http://{rest}")
    except ValueError:
        return None
    place = _PLACE.fullmatch(parts.netloc)
    # An @ further on means that the password holds a character which ends the host.
    if place is None or "@" in parts.path + parts.query + parts.fragment:
        return None
    return _Parts(
        scheme, place["login"] or "", place["host"], place["port"] or "", parts.path, parts.query
    )


def _escapes_problem(url: str) -> str | None:
    if "#" in url:
        return "has a #, behind which nothing is read; write the character itself as %23"
    if _BARE_PERCENT.search(url):
        return "has a % without two hexadecimal digits after it; write the character itself as %25"
    try:
        unquote_to_bytes(url).decode()
    except UnicodeError:
        return "holds what is no UTF-8 text; write each character of a name as its bytes in UTF-8"
    return None


def _host_problem(parts: _Parts) -> str | None:
    if parts.scheme == "memory" and not parts.host:
        return None
    if not parts.host:
        return f"names no host; write {_EXAMPLES}"
    if not _is_host(parts.host):
        return "has a host that is neither a name nor an IP address; correct it"
    if parts.port and not (len(parts.port) <= 5 and 0 < int(parts.port) <= _PORT_MAX):
        return f"has a port that is not from 1 to {_PORT_MAX}; correct it"
    return None


def _is_host(text: str) -> bool:
    if text.startswith("["):
        try:
            ipaddress.IPv6Address(text[1:-1].replace("%25", "%", 1))
        except ValueError:
            return False
        return True
    try:
        # WHY: it is what the network's library does with a name, and it refuses some.
        return _HOST.fullmatch(text.encode("idna").decode()) is not None
    except UnicodeError:
        return False


def _name_problem(parts: _Parts) -> str | None:
    """What is wrong with the database of a Redis, or the virtual host of a RabbitMQ."""
    name = unquote(parts.path.removeprefix("/"))
    if parts.scheme in {"redis", "rediss"}:
        found = _DB.fullmatch(name)
        if found is None or int(found["number"] or 0) > _DB_MAX:
            return f"has a database that is not a number from 0 to {_DB_MAX}; correct it"
    elif len(name.encode()) > _VHOST_BYTES_MAX:
        return f"has a virtual host of more than {_VHOST_BYTES_MAX} bytes; correct it"
    return None


def _options_problem(parts: _Parts) -> str | None:
    """What is wrong behind the ?. WHY no name is quoted: it may be the end of a password."""
    known = _OPTIONS[parts.scheme]
    if parts.query and not known:
        return f"has options, and {parts.scheme}:// knows none; remove them"
    given = parse_qsl(parts.query, keep_blank_values=True)
    if any(name not in known for name, _ in given):
        return (
            f"has an option that {parts.scheme}:// does not take here; it takes {', '.join(known)}"
        )
    for name, value in given:
        if known[name].fullmatch(value) is None:
            return f"has a value of {name} that cannot be used; {_VALUES.get(name, 'write one')}"
    names = {name for name, _ in given}
    if "ssl_keyfile" in names and "ssl_certfile" not in names:
        return "has ssl_keyfile and no ssl_certfile; name the certificate as well"
    return None


_VALUES: Final = {
    "ssl_cert_reqs": "write required, optional or none",
    "ssl_check_hostname": "write true or false",
    "heartbeat": "write whole seconds, up to four digits",
    "login_method": "write PLAIN or AMQPLAIN",
}
