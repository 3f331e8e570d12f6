"""The start-up audit: from the server's variables, on real folders and links, to its log lines."""

import logging
import os
from pathlib import Path

import pytest

from config.server import ServerEnvironment, read_server_environment
from memory import MemoryWriteBoundaryFacts
from tasks.audit_memory import Report, gather_facts, run

DROPPED = "memory_remote_lane_write_instruction_dropped"
OUTSIDE = "memory_root_outside_write_boundary"
LOGGER = "sema_maintenance.audit_memory"
HOME = {"HOME": "/home/sema"}


def as_written(path: str) -> str:
    return path


def facts(**variables: str) -> MemoryWriteBoundaryFacts:
    return gather_facts(read_server_environment({**HOME, **variables}), as_written)


def audited(**variables: str) -> Report:
    """The whole job on these variables and the real file system."""
    return run(lambda: read_server_environment({**HOME, **variables}), os.path.realpath)


def tags(report: Report) -> list[str]:
    return [warning.tag for warning in report.warnings]


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(record.levelno, record.message) for record in caplog.records if record.name == LOGGER]


@pytest.fixture(autouse=True)
def _every_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger=LOGGER)


class TestFacts:
    def test_nothing_set_is_an_in_process_server_with_a_file_engine_in_the_home(self) -> None:
        assert facts() == MemoryWriteBoundaryFacts(
            memory_root="/home/sema/.ai-agent/memory",
            lane="in-process",
            host_semantics_lane=True,
            core_remote_execution_env=False,
            declared_capable=None,
            engine_backend="file",
            containment_roots=(),
        )

    @pytest.mark.parametrize(
        ("provider", "host_semantics", "core_remote", "capable"),
        [("host", True, True, True), ("k8s", False, True, None), ("e2b", False, True, None)],
    )
    def test_the_two_axes_of_a_lane(
        self, provider: str, host_semantics: bool, core_remote: bool, capable: bool | None
    ) -> None:
        found = facts(REMOTE_EXEC=provider)
        assert found.lane == provider
        assert found.host_semantics_lane is host_semantics
        assert found.core_remote_execution_env is core_remote
        assert found.declared_capable is capable

    @pytest.mark.parametrize("provider", ["", "host", "k8s"])
    @pytest.mark.parametrize(("spelling", "declared"), [("yes", True), ("0", False)])
    def test_a_declaration_counts_on_every_lane(
        self, provider: str, spelling: str, declared: bool
    ) -> None:
        found = facts(REMOTE_EXEC=provider, MEMORY_PERSISTENCE_CAPABLE=spelling)
        assert found.declared_capable is declared

    @pytest.mark.parametrize(
        ("variables", "memory_root"),
        [
            ({"MEMORY_ENGINE_DIR": "/e", "AGENT_DATA_DIR": "/a"}, "/e/memory"),
            ({"MEMORY_ENGINE_DIR": "~/e"}, "/home/sema/e/memory"),
            ({"AGENT_DATA_DIR": "/a", "LOCAL_DATA_ROOT": "/l"}, "/a/memory"),
            ({"AGENT_DATA_DIR": "~/a"}, "/home/sema/a/memory"),
            ({"LOCAL_DATA_ROOT": "/l"}, "/home/sema/.ai-agent/memory"),
            ({"MEMORY_ENGINE_DIR": "", "AGENT_DATA_DIR": "/a"}, "/a/memory"),
        ],
    )
    def test_the_file_engines_root(self, variables: dict[str, str], memory_root: str) -> None:
        assert facts(**variables).memory_root == memory_root

    @pytest.mark.parametrize("backend", ["pg", "tidb"])
    @pytest.mark.parametrize(
        ("variables", "memory_root"),
        [
            ({"LOCAL_DATA_ROOT": "/l", "AGENT_DATA_DIR": "/a"}, "/l/memory-work"),
            ({"AGENT_DATA_DIR": "/a", "MEMORY_ENGINE_DIR": "/e"}, "/a/memory-work"),
            ({"MEMORY_ENGINE_DIR": "/e"}, "/home/sema/.ai-agent/memory-work"),
            ({"LOCAL_DATA_ROOT": "~/l/"}, "/home/sema/l/memory-work"),
        ],
    )
    def test_the_sql_engines_root(
        self, backend: str, variables: dict[str, str], memory_root: str
    ) -> None:
        assert facts(MEMORY_ENGINE_BACKEND=backend, **variables).memory_root == memory_root

    @pytest.mark.parametrize(
        ("variables", "has_engine"),
        [
            ({"REMOTE_EXEC": "k8s"}, False),
            ({"REMOTE_EXEC": "k8s", "MEMORY_ENGINE_REMOTE_LANE": "deny"}, False),
            ({"REMOTE_EXEC": "k8s", "MEMORY_ENGINE_REMOTE_LANE": "Allow"}, False),
            ({"REMOTE_EXEC": "k8s", "MEMORY_ENGINE_REMOTE_LANE": "allow"}, True),
            ({"REMOTE_EXEC": "host"}, True),
            ({"REMOTE_EXEC": ""}, True),
            ({"MEMORY_MULTI_TENANT": "true"}, False),
            ({"REMOTE_EXEC": "host", "MEMORY_MULTI_TENANT": "1"}, False),
            (
                {
                    "REMOTE_EXEC": "k8s",
                    "MEMORY_ENGINE_REMOTE_LANE": "allow",
                    "MEMORY_MULTI_TENANT": "yes",
                },
                False,
            ),
            ({"MEMORY_MULTI_TENANT": "false"}, True),
        ],
    )
    def test_which_deployments_have_an_engine(
        self, variables: dict[str, str], has_engine: bool
    ) -> None:
        assert (facts(**variables).memory_root is not None) is has_engine

    def test_the_fence_is_known_on_the_in_process_lane_only(self) -> None:
        assert facts(WORKSPACE_ROOTS="/a:~/b").containment_roots == ("/a", "/home/sema/b")
        assert facts(WORKSPACE_ROOTS="/a", REMOTE_EXEC="host").containment_roots == ()
        assert facts(WORKSPACE_ROOTS="/a", REMOTE_EXEC="k8s").containment_roots == ()

    def test_links_are_followed_before_dots_are_taken_away(self, tmp_path: Path) -> None:
        """`link/..` is the parent of where the link leads, not of where it stands."""
        (tmp_path / "far" / "inner").mkdir(parents=True)
        (tmp_path / "link").symlink_to(tmp_path / "far" / "inner")
        environment = read_server_environment({"MEMORY_ENGINE_DIR": f"{tmp_path}/link/../engine"})
        found = gather_facts(environment, os.path.realpath)
        assert found.memory_root == f"{tmp_path.resolve()}/far/engine/memory"

    @pytest.mark.parametrize("error", [OSError, RuntimeError, ValueError])
    def test_a_path_that_cannot_be_resolved_is_compared_as_written(
        self, error: type[Exception]
    ) -> None:
        def only_the_fence(path: str) -> str:
            if path == "/fence":
                return "/real/fence"
            raise error(path)

        environment = read_server_environment(
            {"MEMORY_ENGINE_DIR": "/real/fence/x", "WORKSPACE_ROOTS": "/fence:/other"}
        )
        found = gather_facts(environment, only_the_fence)
        assert found.memory_root == "/real/fence/x/memory"
        assert found.containment_roots == ("/real/fence", "/other")


class TestOnRealFolders:
    def test_a_root_behind_a_link_into_the_fence_is_inside(self, tmp_path: Path) -> None:
        (tmp_path / "work" / "kept").mkdir(parents=True)
        (tmp_path / "engine").symlink_to(tmp_path / "work" / "kept")
        report = audited(MEMORY_ENGINE_DIR=f"{tmp_path}/engine", WORKSPACE_ROOTS=f"{tmp_path}/work")
        assert report == Report("clear", (), None, automatic_capable=False)

    def test_a_link_out_of_the_fence_is_outside(self, tmp_path: Path) -> None:
        (tmp_path / "work").mkdir()
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "work" / "memory").symlink_to(tmp_path / "elsewhere")
        report = audited(MEMORY_ENGINE_DIR=f"{tmp_path}/work", WORKSPACE_ROOTS=f"{tmp_path}/work")
        assert tags(report) == [OUTSIDE]
        assert f"'{tmp_path.resolve()}/elsewhere'" in report.warnings[0].detail

    def test_a_linked_fence_contains_what_lies_in_its_target(self, tmp_path: Path) -> None:
        (tmp_path / "disk").mkdir()
        (tmp_path / "work").symlink_to(tmp_path / "disk")
        report = audited(MEMORY_ENGINE_DIR=f"{tmp_path}/disk", WORKSPACE_ROOTS=f"{tmp_path}/work")
        assert report.outcome == "clear"

    def test_a_link_above_folders_not_made_yet_still_counts(self, tmp_path: Path) -> None:
        (tmp_path / "disk").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "disk")
        report = audited(
            MEMORY_ENGINE_BACKEND="pg",
            LOCAL_DATA_ROOT=f"{tmp_path}/link/not/yet",
            WORKSPACE_ROOTS=f"{tmp_path}/disk",
        )
        assert report.outcome == "clear"

    def test_links_that_form_a_loop_are_compared_as_written(self, tmp_path: Path) -> None:
        """Resolving strictly raises on the loop; the root is then judged by its spelling."""
        (tmp_path / "a").symlink_to(tmp_path / "b")
        (tmp_path / "b").symlink_to(tmp_path / "a")
        (tmp_path / "work").mkdir()

        def strictly(path: str) -> str:
            return os.path.realpath(path, strict=True)

        variables = {
            "MEMORY_ENGINE_DIR": f"{tmp_path.resolve()}/a",
            "WORKSPACE_ROOTS": f"{tmp_path}/work",
        }
        report = run(lambda: read_server_environment(variables), strictly)
        assert tags(report) == [OUTSIDE]
        assert f"'{tmp_path.resolve()}/a/memory'" in report.warnings[0].detail

    def test_the_home_may_be_behind_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "homes" / "sema").mkdir(parents=True)
        (tmp_path / "home").symlink_to(tmp_path / "homes" / "sema")
        report = audited(HOME=f"{tmp_path}/home", WORKSPACE_ROOTS=f"{tmp_path}/homes")
        assert report.outcome == "clear"

    def test_a_sibling_that_begins_like_the_fence_is_outside(self, tmp_path: Path) -> None:
        (tmp_path / "work").mkdir()
        (tmp_path / "workshop").mkdir()
        report = audited(
            MEMORY_ENGINE_DIR=f"{tmp_path}/workshop/", WORKSPACE_ROOTS=f"{tmp_path}/work"
        )
        assert tags(report) == [OUTSIDE]


class TestReport:
    def test_a_warning_is_logged_under_its_tag(self, caplog: pytest.LogCaptureFixture) -> None:
        report = audited(WORKSPACE_ROOTS="/srv/work")
        assert report.outcome == "warned"
        assert tags(report) == [OUTSIDE]
        assert "MEMORY_ENGINE_DIR" in report.warnings[0].detail
        assert report.error is None
        assert logged(caplog) == [(logging.WARNING, OUTSIDE)]
        assert caplog.records[-1].__dict__["detail"] == report.warnings[0].detail

    @pytest.mark.parametrize("backend", ["pg", "tidb"])
    def test_a_sql_back_end_is_told_its_own_variable(self, backend: str) -> None:
        report = audited(MEMORY_ENGINE_BACKEND=backend, WORKSPACE_ROOTS="/srv/work")
        assert tags(report) == [OUTSIDE]
        assert "LOCAL_DATA_ROOT" in report.warnings[0].detail
        assert "MEMORY_ENGINE_DIR" not in report.warnings[0].detail

    def test_an_allowed_remote_lane_must_be_declared(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        lane = {"REMOTE_EXEC": "k8s", "MEMORY_ENGINE_REMOTE_LANE": "allow"}
        report = audited(**lane, WORKSPACE_ROOTS="/srv/work")
        assert tags(report) == [DROPPED]
        assert logged(caplog) == [(logging.WARNING, DROPPED)]
        for declared in ("true", "false"):
            assert audited(**lane, MEMORY_PERSISTENCE_CAPABLE=declared).outcome == "clear"

    def test_a_clear_audit_logs_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        assert audited(REMOTE_EXEC="k8s") == Report("clear", (), None, automatic_capable=False)
        assert audited() == Report("clear", (), None, automatic_capable=False)
        assert logged(caplog) == []

    def test_host_counts_as_capable_and_says_so(self, caplog: pytest.LogCaptureFixture) -> None:
        assert audited(REMOTE_EXEC="host") == Report("clear", (), None, automatic_capable=True)
        assert logged(caplog) == [(logging.INFO, "memory_persistence_capable_automatic")]

    @pytest.mark.parametrize("declared", ["true", "false"])
    def test_a_declared_host_is_not_automatic(
        self, declared: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        report = audited(REMOTE_EXEC="host", MEMORY_PERSISTENCE_CAPABLE=declared)
        assert report == Report("clear", (), None, automatic_capable=False)
        assert logged(caplog) == []

    @pytest.mark.parametrize(
        ("variable", "value"),
        [
            ("MEMORY_PERSISTENCE_CAPABLE", "maybe"),
            ("MEMORY_ENGINE_BACKEND", "mysql"),
            ("MEMORY_MULTI_TENANT", "2"),
            ("MEMORY_ENGINE_DIR", "relative/dir"),
            ("WORKSPACE_ROOTS", "/srv/work:relative"),
            ("REMOTE_EXEC", "two words"),
        ],
    )
    def test_a_malformed_value_fails_the_audit_and_nothing_else(
        self, variable: str, value: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        report = audited(**{variable: value})
        assert report.outcome == "failed"
        assert report.warnings == ()
        assert report.error is not None
        assert report.error.startswith(f"{variable} ")
        assert logged(caplog) == [(logging.ERROR, "server_environment_malformed")]
        assert caplog.records[-1].__dict__["variable"] == variable
        assert caplog.records[-1].__dict__["detail"] == report.error

    def test_a_data_root_that_nothing_names_fails_only_where_it_is_needed(self) -> None:
        report = audited(HOME="")
        assert report.outcome == "failed"
        assert report.error == (
            "AGENT_DATA_DIR is unset and HOME is no absolute path: set either of them."
        )
        assert audited(HOME="", MEMORY_ENGINE_DIR="/e").outcome == "clear"
        assert audited(HOME="", REMOTE_EXEC="k8s").outcome == "clear"

    def test_a_fault_of_ours_is_not_mistaken_for_a_malformed_value(self) -> None:
        def broken() -> ServerEnvironment:
            raise LookupError("not the operator's doing")

        with pytest.raises(LookupError):
            run(broken, as_written)

    def test_repeating_gives_the_same_report(self) -> None:
        assert audited(WORKSPACE_ROOTS="/srv/work") == audited(WORKSPACE_ROOTS="/srv/work")
