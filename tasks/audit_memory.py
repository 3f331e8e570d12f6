"""Say at start-up when agents of this deployment structurally cannot write memory.

What: takes the facts from the server's own variables (`config.server` lists them), asks `memory`
for its judgement and announces it. It touches nothing and never stops a start-up.
Why in production: such a deployment looks healthy. Agents promise to remember, the write is
refused or never attempted, and nobody learns of it until a user asks for what was saved.
Emits: one warning named by its tag; `memory_persistence_capable_automatic` at info where the
`host` lane counts as capable without being declared; `server_environment_malformed` at error.
Fails: only on a variable that cannot be understood; the report names it, nothing is raised.

Assumptions: the `host` lane has an engine without MEMORY_ENGINE_REMOTE_LANE; a multi-tenant server
has none; the fence of the in-process lane is WORKSPACE_ROOTS, and no other lane's fence is known.
"""

import logging
import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from config.server import ServerEnvironment, ServerEnvironmentError
from memory import (
    BoundaryWarning,
    MemoryWriteBoundaryFacts,
    build_memory_write_boundary_audit,
    effective_memory_persistence_capable,
    memory_mount_root,
)

logger = logging.getLogger("sema_maintenance.audit_memory")

_IN_PROCESS: Final = "in-process"
_HOST: Final = "host"
_SQL_WORK_FOLDER: Final = "memory-work"


@dataclass(frozen=True, slots=True)
class Report:
    """What one audit found, for the exit code, the metric and the log."""

    outcome: Literal["clear", "warned", "failed"]  # clear: no reason found, not proof of success.
    warnings: tuple[BoundaryWarning, ...]
    error: str | None  # Set exactly when failed: one sentence that names the variable.
    automatic_capable: bool  # True: `host` counts as capable because nothing was declared.


def run(
    environment_source: Callable[[], ServerEnvironment], resolve: Callable[[str], str]
) -> Report:
    """Audit once and log what was found. Safe to repeat.

    `resolve` follows symbolic links, also where the end of a path does not exist yet, as
    `os.path.realpath` does: the engine makes its folders only when it first needs them.
    """
    try:
        environment = environment_source()
        facts = gather_facts(environment, resolve)
    except ServerEnvironmentError as malformed:
        error = str(malformed)
        logger.error(
            "server_environment_malformed",
            extra={"variable": malformed.variable, "detail": error},
        )
        return Report("failed", (), error, automatic_capable=False)

    automatic = environment.memory_persistence_capable is None and facts.declared_capable is True
    if automatic:
        logger.info(
            "memory_persistence_capable_automatic",
            extra={
                "detail": f"Execution lane '{facts.lane}' works on this machine's files, so memory "
                "counts as persistent; declare MEMORY_PERSISTENCE_CAPABLE to overrule that."
            },
        )
    warnings = tuple(build_memory_write_boundary_audit(facts))
    for warning in warnings:
        logger.warning(warning.tag, extra={"detail": warning.detail})
    return Report("warned" if warnings else "clear", warnings, None, automatic_capable=automatic)


def gather_facts(
    environment: ServerEnvironment, resolve: Callable[[str], str]
) -> MemoryWriteBoundaryFacts:
    """Turn variables into facts. A path that `resolve` raises on is compared as written.

    Raises ServerEnvironmentError when the memory root depends on a data root that nothing names.
    """
    provider = environment.remote_exec
    memory_root = _memory_root(environment)
    fences = environment.workspace_roots if provider is None else ()
    return MemoryWriteBoundaryFacts(
        memory_root=None if memory_root is None else _resolved(memory_root, resolve),
        lane=provider or _IN_PROCESS,
        host_semantics_lane=provider in {None, _HOST},
        core_remote_execution_env=provider is not None,
        declared_capable=effective_memory_persistence_capable(
            provider, environment.memory_persistence_capable
        ),
        engine_backend=environment.memory_engine_backend,
        containment_roots=tuple(_resolved(fence, resolve) for fence in fences),
    )


def _memory_root(environment: ServerEnvironment) -> str | None:
    if not _has_engine(environment):
        return None
    backend = environment.memory_engine_backend
    if backend == "file":
        engine_root = environment.memory_engine_dir or _data_root(environment)
    else:
        data_root = environment.local_data_root or _data_root(environment)
        engine_root = posixpath.join(data_root, _SQL_WORK_FOLDER)
    return memory_mount_root(backend, engine_root)


def _has_engine(environment: ServerEnvironment) -> bool:
    if environment.memory_multi_tenant:
        return False
    return (
        environment.remote_exec in {None, _HOST} or environment.memory_engine_remote_lane == "allow"
    )


def _data_root(environment: ServerEnvironment) -> str:
    if environment.agent_data_dir is None:
        raise ServerEnvironmentError(
            "AGENT_DATA_DIR", "is unset and HOME is no absolute path: set either of them."
        )
    return environment.agent_data_dir


def _resolved(path: str, resolve: Callable[[str], str]) -> str:
    """The path behind its links; these errors are what resolving loops and odd names raises."""
    try:
        return resolve(path)
    except (OSError, RuntimeError, ValueError):
        return path
