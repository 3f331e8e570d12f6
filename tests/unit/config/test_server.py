"""The server's variables: what is understood, what is refused, and in which words."""

import os
import pwd
from pathlib import Path

import pytest

from config.server import (
    ServerEnvironment,
    ServerEnvironmentError,
    read_process_environment,
    read_server_environment,
)

HOME = {"HOME": "/home/sema"}
BOOLEANS = ("MEMORY_PERSISTENCE_CAPABLE", "MEMORY_MULTI_TENANT")
PATHS = ("MEMORY_ENGINE_DIR", "AGENT_DATA_DIR", "LOCAL_DATA_ROOT", "WORKSPACE_ROOTS")
WORDS = ("REMOTE_EXEC", "MEMORY_ENGINE_REMOTE_LANE")
EVERY_VARIABLE = (*BOOLEANS, *PATHS, *WORDS, "MEMORY_ENGINE_BACKEND")

NOTHING_SET = ServerEnvironment(
    remote_exec=None,
    memory_persistence_capable=None,
    memory_engine_backend="file",
    memory_engine_dir=None,
    agent_data_dir="/home/sema/.ai-agent",
    local_data_root=None,
    memory_engine_remote_lane=None,
    memory_multi_tenant=False,
    workspace_roots=(),
)


def read(**variables: str) -> ServerEnvironment:
    return read_server_environment({**HOME, **variables})


def refusal(**variables: str) -> str:
    with pytest.raises(ServerEnvironmentError) as refused:
        read(**variables)
    message = str(refused.value)
    assert message.startswith(refused.value.variable + " ")
    return message


@pytest.fixture
def bare_process(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """This process with none of the variables in question set."""
    for name in (*EVERY_VARIABLE, "HOME"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_every_variable_is_read() -> None:
    assert read(
        REMOTE_EXEC="k8s",
        MEMORY_PERSISTENCE_CAPABLE="false",
        MEMORY_ENGINE_BACKEND="pg",
        MEMORY_ENGINE_DIR="/data/engine",
        AGENT_DATA_DIR="/data/agent",
        LOCAL_DATA_ROOT="/data/local",
        MEMORY_ENGINE_REMOTE_LANE="allow",
        MEMORY_MULTI_TENANT="true",
        WORKSPACE_ROOTS="/srv/a:/srv/b",
        UNRELATED="\0",
    ) == ServerEnvironment(
        remote_exec="k8s",
        memory_persistence_capable=False,
        memory_engine_backend="pg",
        memory_engine_dir="/data/engine",
        agent_data_dir="/data/agent",
        local_data_root="/data/local",
        memory_engine_remote_lane="allow",
        memory_multi_tenant=True,
        workspace_roots=("/srv/a", "/srv/b"),
    )


@pytest.mark.parametrize("nothing", ["", " ", "\t\n"])
def test_empty_is_unset(nothing: str) -> None:
    assert read() == NOTHING_SET
    assert read(**dict.fromkeys(EVERY_VARIABLE, nothing)) == NOTHING_SET


@pytest.mark.parametrize("name", EVERY_VARIABLE)
def test_white_space_around_a_value_does_not_count(name: str) -> None:
    """A block of a manifest often ends in a line break."""
    value = "1" if name in BOOLEANS else "/srv" if name in PATHS else "pg"
    assert read(**{name: f" {value}\n"}) == read(**{name: value}) != NOTHING_SET


class TestBooleans:
    @pytest.mark.parametrize("spelling", ["true", "TRUE", "True", "1", "yes", "Yes"])
    def test_true(self, spelling: str) -> None:
        found = read(MEMORY_PERSISTENCE_CAPABLE=spelling, MEMORY_MULTI_TENANT=spelling)
        assert (found.memory_persistence_capable, found.memory_multi_tenant) == (True, True)

    @pytest.mark.parametrize("spelling", ["false", "FALSE", "False", "0", "no", "NO"])
    def test_false(self, spelling: str) -> None:
        found = read(MEMORY_PERSISTENCE_CAPABLE=spelling, MEMORY_MULTI_TENANT=spelling)
        assert (found.memory_persistence_capable, found.memory_multi_tenant) == (False, False)

    @pytest.mark.parametrize("name", BOOLEANS)
    @pytest.mark.parametrize("spelling", ["maybe", "on", "t", "2", "truee", "none"])
    def test_anything_else_is_refused(self, name: str, spelling: str) -> None:
        assert refusal(**{name: spelling}) == (
            f'{name} is "{spelling}": use one of true, 1, yes, false, 0, no, or leave it unset.'
        )


class TestBackend:
    @pytest.mark.parametrize("backend", ["file", "pg", "tidb"])
    def test_the_three(self, backend: str) -> None:
        assert read(MEMORY_ENGINE_BACKEND=backend).memory_engine_backend == backend

    @pytest.mark.parametrize("backend", ["mysql", "PG", "postgres", "file,pg"])
    def test_anything_else_is_refused(self, backend: str) -> None:
        assert refusal(MEMORY_ENGINE_BACKEND=backend) == (
            f'MEMORY_ENGINE_BACKEND is "{backend}": use file, pg or tidb, '
            "or leave it unset for file."
        )


class TestWords:
    @pytest.mark.parametrize("name", WORDS)
    def test_are_an_open_set_kept_as_written(self, name: str) -> None:
        found = read(**{name: "Local-docker_2.x"})
        assert "Local-docker_2.x" in {found.remote_exec, found.memory_engine_remote_lane}

    @pytest.mark.parametrize("name", WORDS)
    @pytest.mark.parametrize("value", ["two words", "a;b", "-x", "höst", "a" * 65])
    def test_what_is_no_word_is_refused(self, name: str, value: str) -> None:
        message = refusal(**{name: value})
        assert message.startswith(f'{name} is "{value}": use one word')


class TestPaths:
    @pytest.mark.parametrize("name", PATHS)
    @pytest.mark.parametrize(
        ("written", "meant"),
        [
            ("~", "/home/sema"),
            ("~/", "/home/sema/"),
            ("~/memory", "/home/sema/memory"),
            ("/data/~", "/data/~"),
            ("/data/../x//", "/data/../x//"),
            ("/data/a b", "/data/a b"),
        ],
    )
    def test_only_a_leading_tilde_changes_anything(
        self, name: str, written: str, meant: str
    ) -> None:
        found = read(**{name: written})
        assert {
            "MEMORY_ENGINE_DIR": found.memory_engine_dir,
            "AGENT_DATA_DIR": found.agent_data_dir,
            "LOCAL_DATA_ROOT": found.local_data_root,
            "WORKSPACE_ROOTS": found.workspace_roots[0] if found.workspace_roots else None,
        }[name] == meant

    @pytest.mark.parametrize("name", PATHS)
    @pytest.mark.parametrize("value", ["data", "./data", "../data", "~root/data", "~~", "$HOME/x"])
    def test_what_does_not_start_at_the_top_is_refused(self, name: str, value: str) -> None:
        assert refusal(**{name: value}) == (
            f'{name} has the path "{value}": use an absolute path or one beginning with ~/.'
        )

    @pytest.mark.parametrize("home", ["", "relative", "~"])
    def test_a_tilde_needs_a_home(self, home: str) -> None:
        message = refusal(HOME=home, MEMORY_ENGINE_DIR="~/m")
        assert message == (
            'MEMORY_ENGINE_DIR has the path "~/m", but HOME is no absolute path: spell it out.'
        )

    @pytest.mark.parametrize("home", ["", "relative"])
    def test_without_a_home_the_data_root_is_unknown(self, home: str) -> None:
        assert read(HOME=home).agent_data_dir is None
        assert read(HOME=home, AGENT_DATA_DIR="/data").agent_data_dir == "/data"

    def test_the_home_may_be_the_top_folder(self) -> None:
        found = read(HOME="/", MEMORY_ENGINE_DIR="~", LOCAL_DATA_ROOT="~/x")
        assert (found.memory_engine_dir, found.local_data_root) == ("/", "/x")
        assert found.agent_data_dir == "/.ai-agent"

    def test_workspace_roots_are_split_and_each_expanded(self) -> None:
        assert read(WORKSPACE_ROOTS=":/srv/a: ~/b ::/srv/c d:").workspace_roots == (
            "/srv/a",
            "/home/sema/b",
            "/srv/c d",
        )
        assert read(WORKSPACE_ROOTS=" : ").workspace_roots == ()

    def test_one_bad_workspace_root_is_named(self) -> None:
        assert 'has the path "b"' in refusal(WORKSPACE_ROOTS="/srv/a:b")


@pytest.mark.parametrize("name", [*EVERY_VARIABLE, "HOME"])
@pytest.mark.parametrize("bad", ["/a\0b", "/a\nb", "/a\udcff"])
def test_what_no_log_line_can_hold_is_refused_without_repeating_it(name: str, bad: str) -> None:
    assert refusal(**{name: bad}) == (
        f"{name} holds a control character or bytes that are not UTF-8: remove them."
    )


def test_a_long_bad_value_is_cut() -> None:
    message = refusal(MEMORY_ENGINE_BACKEND="x" * 5000)
    assert len(message) < 250
    assert 'x…"' in message


def test_a_password_in_the_wrong_variable_is_not_repeated() -> None:
    assert "hunter2" not in refusal(MEMORY_ENGINE_DIR="postgresql://sema:hunter2@db/ledger")


class TestProcess:
    def test_reads_the_environment_of_this_process(
        self, bare_process: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        bare_process.setenv("HOME", str(tmp_path))
        bare_process.setenv("REMOTE_EXEC", "host")
        bare_process.setenv("MEMORY_ENGINE_DIR", "~/engine")
        found = read_process_environment()
        assert found.remote_exec == "host"
        assert found.memory_engine_dir == f"{tmp_path}/engine"
        assert found.agent_data_dir == f"{tmp_path}/.ai-agent"

    @pytest.mark.parametrize("home", [None, ""])
    def test_without_home_asks_for_the_users_account(
        self, bare_process: pytest.MonkeyPatch, home: str | None
    ) -> None:
        if home is not None:
            bare_process.setenv("HOME", home)
        bare_process.setattr(os, "getuid", lambda: 0)
        account = pwd.getpwuid(0).pw_dir
        assert read_process_environment().agent_data_dir == f"{account.rstrip('/')}/.ai-agent"

    def test_a_user_without_an_account_has_no_data_root(
        self, bare_process: pytest.MonkeyPatch
    ) -> None:
        """As in a container that runs under an arbitrary uid."""
        unused = next(uid for uid in range(2**31 - 2, 0, -1) if not _has_account(uid))
        bare_process.setattr(os, "getuid", lambda: unused)
        assert read_process_environment().agent_data_dir is None


def _has_account(uid: int) -> bool:
    return any(account.pw_uid == uid for account in pwd.getpwall())
