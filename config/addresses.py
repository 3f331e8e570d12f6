"""Network addresses as operators write them: of the database, of transcripts and our own server.

What is wrong with a database's address never quotes it, since it may hold a password. It is checked
here in full because libpq does quote the part that it cannot read. Brokers' are in `brokers`.
"""

import ipaddress
import re
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from config.errors import ConfigError, shown

_DATABASE_EXAMPLES: Final = '"postgresql://user@host:5432/database" or "host=db dbname=agents"'
_ESCAPES: Final = "in a user name, a password or a name write @ as %40, / as %2F and : as %3A"

_RELEASE_EXAMPLE: Final = '"https://agents.example/scopes/{scope}/sessions/{session_id}"'

_HTTP_SCHEME: Final = re.compile(r"https?://", re.IGNORECASE)
# Between two places: only what a name in the first of them could end with as well.
_RUN_TOGETHER: Final = re.compile(r"\}[A-Za-z0-9\-._~%]*+\{")
# What may stand in a URL as it is; no fragment, which is never sent.
_FIXED_PARTS: Final = re.compile(r"[A-Za-z0-9\-._~:/?\[\]@!$&'()*+,;=%]*+")
_POSTGRES_SCHEME: Final = re.compile(r"postgres(?:ql)?://")
# As libpq splits it: whoever comes before the first @, one or more hosts, database, parameters.
_POSTGRES_URL: Final = re.compile(
    r"postgres(?:ql)?://(?:[^@/]*@)?"
    r"(?P<hosts>[^@/?]*)"
    r"(?:/[^@/?]*)?"
    r"(?:\?(?:[^=&]+=[^=&]*(?:&(?!\Z)|\Z))*)?"
)
_HOST_AND_PORT: Final = re.compile(r"(?:\[[^\[\]]+\]|[^\[\]:]*)(?::(?P<port>[0-9]{0,5}))?")
# Possessive, so that a text of any length is read in one way only.
_KEYWORDS: Final = re.compile(
    r"(?:[a-z_]++\s*+=\s*+(?:'(?:[^'\\]|\\.)*+'|(?!')(?:[^\s\\]|\\.)*+)(?:\s++|\Z))++",
    re.ASCII | re.DOTALL,
)
_BARE_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST_NAME: Final = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_PORT_MAX: Final = 65535


class Address(NamedTuple):
    """Where a server listens: a host name or IP address, and a port (0: any that is free)."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> Address:
    """The host and port of a text such as "127.0.0.1:9464" or "[::1]:9464". Raises ConfigError."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        known = _is_ip(host[1:-1], ipaddress.IPv6Address)
        host = host[1:-1]
    elif re.fullmatch(r"[0-9.]+", host):
        known = _is_ip(host, ipaddress.IPv4Address)
    else:
        known = _HOST_NAME.fullmatch(host) is not None
    if not known or re.fullmatch(r"[0-9]{1,5}", port) is None or int(port) > _PORT_MAX:
        raise ConfigError(
            f"{shown(text)} is not a host and a port; write both, such as "
            '"127.0.0.1:9464", "[::1]:9464", or "0.0.0.0:9464" for every interface.'
        )
    return Address(host, int(port))


def database_url_problem(text: str) -> str | None:
    """What is wrong with the address of a Postgres database, and what to do; None when nothing."""
    if not _POSTGRES_SCHEME.match(text):
        if _KEYWORDS.fullmatch(text):
            return None
        return f"is neither a Postgres URL nor libpq keywords; write {_DATABASE_EXAMPLES}"
    if _BARE_PERCENT.search(text):
        return "has a % without two hexadecimal digits after it; write the character itself as %25"
    url = _POSTGRES_URL.fullmatch(text)
    if url is None or re.search(r"\s", text) or not _are_hosts(url["hosts"]):
        return f"cannot be split into user, host, port and database; {_ESCAPES}"
    return None


def release_url_problem(text: str) -> str | None:
    """What is wrong with the template of a transcript's address, and what to do; None when nothing.

    A scope and a session have their places in the path or the query: nobody whose names they are is
    to choose which machine is asked.
    """
    if _HTTP_SCHEME.match(text) is None:
        return f"does not begin with http:// or https://; write {_RELEASE_EXAMPLE}"
    if _BARE_PERCENT.search(text):
        return "has a % without two hexadecimal digits after it; write the character itself as %25"
    try:
        parts = urlsplit(text)
        readable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return f"cannot be split into host, port, path and query; write {_RELEASE_EXAMPLE}"
    if "@" in parts.netloc:
        return "holds a user or a password; put a token into the file of MAINT_RELEASE_TOKEN_FILE"
    for name in ("{scope}", "{session_id}"):
        if name not in f"{parts.path}?{parts.query}":
            return f"has no {name} in its path or query; write {_RELEASE_EXAMPLE}"
    fixed = re.sub(r"\{(?:scope|session_id)\}", "x", text)
    if not readable or "{" in parts.netloc or not _FIXED_PARTS.fullmatch(fixed):
        return f"cannot be split into host, port, path and query; write {_RELEASE_EXAMPLE}"
    if _RUN_TOGETHER.search(text):
        return "has nothing between its places that no name can hold; write / or & between them"
    if {".", ".."} & set(unquote(parts.path).split("/")):
        return "has . or .. in its path; write the path that is meant"
    return None


def _are_hosts(text: str) -> bool:
    found = [_HOST_AND_PORT.fullmatch(host) for host in text.split(",")]
    return all(host is not None and int(host["port"] or 0) <= _PORT_MAX for host in found)


def _is_ip(text: str, kind: type[ipaddress.IPv4Address] | type[ipaddress.IPv6Address]) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True
