"""What can be said about a deployment's memory from its settings alone.

Everything here is a pure function: no file is touched, no clock read, no variable looked up. Who
gathers the facts is `tasks.audit_memory`; what the server's variables mean is `config.server`.
"""

from memory.boundary import (
    BOUNDARY_TAGS,
    BoundaryTag,
    BoundaryWarning,
    EngineBackend,
    MemoryWriteBoundaryFacts,
    build_memory_write_boundary_audit,
    effective_memory_persistence_capable,
    memory_mount_root,
)

__all__ = [
    "BOUNDARY_TAGS",
    "BoundaryTag",
    "BoundaryWarning",
    "EngineBackend",
    "MemoryWriteBoundaryFacts",
    "build_memory_write_boundary_audit",
    "effective_memory_persistence_capable",
    "memory_mount_root",
]
