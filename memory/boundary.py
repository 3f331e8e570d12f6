"""Judge whether a deployment can structurally write memory, from facts that others gathered.

Agents save memory by writing files with their file tools, so memory works only where its root lies
within what those tools may write. The judgement knows only what the settings say: it warns where
the wiring cannot work, and stays silent where it cannot tell. Silence proves nothing.
"""

import posixpath
from dataclasses import dataclass
from typing import Final, Literal, get_args

EngineBackend = Literal["file", "pg", "tidb"]
BoundaryTag = Literal[
    "memory_remote_lane_write_instruction_dropped",
    "memory_root_outside_write_boundary",
]

BOUNDARY_TAGS: Final[tuple[BoundaryTag, ...]] = get_args(BoundaryTag)
"""Every tag there is, so that a metric can show the clear ones as 0."""

# WHY per back end: the SQL back ends never read MEMORY_ENGINE_DIR; an operator who turned that
# knob there would believe the deployment repaired.
_ROOT_VARIABLE: Final[dict[EngineBackend, str]] = {
    "file": "MEMORY_ENGINE_DIR",
    "pg": "LOCAL_DATA_ROOT",
    "tidb": "LOCAL_DATA_ROOT",
}


@dataclass(frozen=True, slots=True)
class MemoryWriteBoundaryFacts:
    """What is known at start-up; the two lane flags are separate axes, neither implies the other.

    Symbolic links are already resolved by whoever fills this in.
    """

    memory_root: str | None  # None: no memory engine, nothing to judge.
    lane: str  # Only ever shown, never judged.
    host_semantics_lane: bool  # File tools work on the disk that holds the memory root.
    core_remote_execution_env: bool  # Core calls the environment remote; true of `host` as well.
    declared_capable: bool | None  # The effective value, not the raw variable.
    engine_backend: EngineBackend  # Only chooses which variable the advice names.
    containment_roots: tuple[str, ...]  # Empty: the fence is not known.


@dataclass(frozen=True, slots=True)
class BoundaryWarning:
    """One finding: a stable name for filters and alerts, and the advice for a person."""

    tag: BoundaryTag
    detail: str


def effective_memory_persistence_capable(
    remote_exec_provider: str | None,
    declared: bool | None,  # noqa: FBT001 - three states, and the contract gives the place.
) -> bool | None:
    """The declaration that counts: the operator's own, else True on `host`, else none.

    The `host` lane works on the machine that holds the memory root, so what True asserts holds
    there by construction. Every other provider has a disk of its own and must be declared.
    """
    if declared is not None:
        return declared
    return True if remote_exec_provider == "host" else None


def memory_mount_root(backend: EngineBackend, engine_root: str) -> str:
    """The tree the engine really reads and writes: for `file` one level below its own root."""
    return posixpath.join(engine_root, "memory") if backend == "file" else engine_root


def build_memory_write_boundary_audit(facts: MemoryWriteBoundaryFacts) -> list[BoundaryWarning]:
    """Name the one reason why this deployment cannot write memory; empty when none is certain.

    A path that is not absolute is an unknown place: as the memory root it silences the fence rule,
    as a fence root it does so unless another root already contains the memory root.
    """
    if not facts.memory_root or facts.declared_capable is not None:
        return []
    # WHY first, and alone: a remote lane's fence is on another machine, so nothing about folders
    # here would be true there.
    if facts.core_remote_execution_env:
        return [_instruction_dropped(facts.memory_root, facts.lane)]
    if facts.host_semantics_lane and _certainly_outside(facts.memory_root, facts.containment_roots):
        return [_outside_boundary(facts.memory_root, facts)]
    return []


def _certainly_outside(path: str, roots: tuple[str, ...]) -> bool:
    """True only when every root is a known place and none of them contains the path."""
    where = _components(path)
    fences = [_components(root) for root in roots if root]
    if where is None or not fences:
        return False
    return all(fence is not None and where[: len(fence)] != fence for fence in fences)


def _components(path: str) -> tuple[str, ...] | None:
    """The names from the file system's root down, `.` and `..` resolved; None when not absolute."""
    if not posixpath.isabs(path):
        return None
    # WHY dropping empty names: normpath keeps a leading `//`, which is `/` where we run.
    return tuple(name for name in posixpath.normpath(path).split("/") if name)


def _instruction_dropped(memory_root: str, lane: str) -> BoundaryWarning:
    """Offers no variable that moves the root: wherever it lay here, the lane would not see it."""
    return BoundaryWarning(
        "memory_remote_lane_write_instruction_dropped",
        f"Core treats execution lane '{lane}' as remote and withholds the instruction to write "
        f"memory, so agents are never told to save anything under '{memory_root}'. "
        "Declare MEMORY_PERSISTENCE_CAPABLE=true if the file tools of this lane work on the same "
        "files as that memory root (for example through a shared mount); otherwise declare "
        "MEMORY_PERSISTENCE_CAPABLE=false, so that agents say openly that they keep nothing.",
    )


def _outside_boundary(memory_root: str, facts: MemoryWriteBoundaryFacts) -> BoundaryWarning:
    fences = ", ".join(f"'{root}'" for root in facts.containment_roots if root)
    return BoundaryWarning(
        "memory_root_outside_write_boundary",
        f"On execution lane '{facts.lane}' the memory root '{memory_root}' lies in none of the "
        f"folders where file tools may write ({fences}), so what agents try to save there is "
        f"refused. Set {_ROOT_VARIABLE[facts.engine_backend]} so that the memory root comes to "
        "lie inside one of them, or declare MEMORY_PERSISTENCE_CAPABLE=false if nothing is to be "
        "kept, or MEMORY_PERSISTENCE_CAPABLE=true if memory is written through another channel. "
        "Moving the root gives reach, not a file tool: the in-process lane may have none at all, "
        "so this warning going away does not prove that memory can be written.",
    )
