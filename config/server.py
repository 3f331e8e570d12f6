"""Read the variables of the agent server, which the worker shares, for the memory audit.

| variable | allowed | unset means |
|---|---|---|
| `REMOTE_EXEC` | a provider's name, such as `host` or `k8s` | agents execute in process |
| `MEMORY_PERSISTENCE_CAPABLE` | boolean | not declared |
| `MEMORY_ENGINE_BACKEND` | `file`, `pg`, `tidb` | `file` |
| `MEMORY_ENGINE_DIR` | path | the data root |
| `AGENT_DATA_DIR` | path: the data root | `~/.ai-agent` |
| `LOCAL_DATA_ROOT` | path | the data root |
| `MEMORY_ENGINE_REMOTE_LANE` | a word; only `allow` allows | no engine on remote lanes |
| `MEMORY_MULTI_TENANT` | boolean | false |
| `WORKSPACE_ROOTS` | paths separated by `:`, empty ones ignored | fence not known |

White space around a value is ignored, and a value that is then empty is unset. A boolean is one of
true, false, 1, 0, yes and no, in any case. Providers and lane words are an open set, since the
server may learn new ones; they are compared exactly. A path is absolute, or begins with `~/` (or is
`~`) for the folder in `HOME`: the server's working directory is not known here, so a relative path
would be a guess, and `~name` is not looked up. `..` is kept, because only the file system knows
what a link before it means.
"""

import os
import pwd
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from config.errors import ConfigError, shown

_BOOLEANS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DEFAULT_DATA_ROOT: Final = "~/.ai-agent"


class ServerEnvironmentError(ConfigError):
    """A variable of the server cannot be understood. Report it and go on without the audit."""

    def __init__(self, variable: str, problem: str) -> None:
        super().__init__(f"{variable} {problem}")
        self.variable = variable


@dataclass(frozen=True, slots=True)
class ServerEnvironment:
    """The server's own variables, checked; None where unset and nothing stands in for it.

    Paths are absolute but neither normalised nor resolved.
    """

    remote_exec: str | None
    memory_persistence_capable: bool | None
    memory_engine_backend: Literal["file", "pg", "tidb"]
    memory_engine_dir: str | None
    agent_data_dir: str | None  # None only when there is no HOME for the default either.
    local_data_root: str | None
    memory_engine_remote_lane: str | None
    memory_multi_tenant: bool
    workspace_roots: tuple[str, ...]


def read_process_environment() -> ServerEnvironment:
    """The variables of this process, with the home of its user where HOME is unset.

    Raises ServerEnvironmentError as `read_server_environment` does.
    """
    variables = dict(os.environ)
    if not variables.get("HOME", "").strip():
        variables["HOME"] = _home_of_this_user()
    return read_server_environment(variables)


def read_server_environment(variables: Mapping[str, str]) -> ServerEnvironment:
    """Check every variable, used or not; raises ServerEnvironmentError for the first bad one."""
    return ServerEnvironment(
        remote_exec=_word(variables, "REMOTE_EXEC"),
        memory_persistence_capable=_boolean(variables, "MEMORY_PERSISTENCE_CAPABLE"),
        memory_engine_backend=_backend(variables, "MEMORY_ENGINE_BACKEND"),
        memory_engine_dir=_path(variables, "MEMORY_ENGINE_DIR"),
        agent_data_dir=_path(variables, "AGENT_DATA_DIR") or _default_data_root(variables),
        local_data_root=_path(variables, "LOCAL_DATA_ROOT"),
        memory_engine_remote_lane=_word(variables, "MEMORY_ENGINE_REMOTE_LANE"),
        memory_multi_tenant=_boolean(variables, "MEMORY_MULTI_TENANT") or False,
        workspace_roots=_paths(variables, "WORKSPACE_ROOTS"),
    )


def _home_of_this_user() -> str:
    """Empty where the user has no account entry, as in a container under an arbitrary uid."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""


def _text(variables: Mapping[str, str], name: str) -> str | None:
    value = variables.get(name, "").strip()
    # WHY: no file system takes a NUL, no log line a lone surrogate (bytes that are not UTF-8), and
    # a line break would cut a warning in two.
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in value):
        raise ServerEnvironmentError(
            name, "holds a control character or bytes that are not UTF-8: remove them."
        )
    return value or None


def _word(variables: Mapping[str, str], name: str) -> str | None:
    value = _text(variables, name)
    if value is not None and not _WORD.fullmatch(value):
        raise ServerEnvironmentError(
            name,
            f"is {shown(value)}: use one word of up to 64 letters, digits, dots, hyphens and "
            "underscores, or leave it unset.",
        )
    return value


def _boolean(variables: Mapping[str, str], name: str) -> bool | None:
    value = _text(variables, name)
    if value is None:
        return None
    try:
        return _BOOLEANS[value.lower()]
    except KeyError:
        raise ServerEnvironmentError(
            name, f"is {shown(value)}: use one of {', '.join(_BOOLEANS)}, or leave it unset."
        ) from None


def _backend(variables: Mapping[str, str], name: str) -> Literal["file", "pg", "tidb"]:
    match _text(variables, name):
        case None | "file":
            return "file"
        case "pg":
            return "pg"
        case "tidb":
            return "tidb"
        case other:
            raise ServerEnvironmentError(
                name, f"is {shown(other)}: use file, pg or tidb, or leave it unset for file."
            )


def _path(variables: Mapping[str, str], name: str) -> str | None:
    value = _text(variables, name)
    return None if value is None else _absolute(variables, name, value)


def _paths(variables: Mapping[str, str], name: str) -> tuple[str, ...]:
    entries = (entry.strip() for entry in (_text(variables, name) or "").split(":"))
    return tuple(_absolute(variables, name, entry) for entry in entries if entry)


def _absolute(variables: Mapping[str, str], name: str, value: str) -> str:
    if value == "~" or value.startswith("~/"):
        home = _home(variables)
        if home is None:
            raise ServerEnvironmentError(
                name, f"has the path {shown(value)}, but HOME is no absolute path: spell it out."
            )
        return _below(home, value)
    if not value.startswith("/"):
        raise ServerEnvironmentError(
            name, f"has the path {shown(value)}: use an absolute path or one beginning with ~/."
        )
    return value


def _default_data_root(variables: Mapping[str, str]) -> str | None:
    home = _home(variables)
    return None if home is None else _below(home, _DEFAULT_DATA_ROOT)


def _home(variables: Mapping[str, str]) -> str | None:
    home = _text(variables, "HOME")
    return home if home is not None and home.startswith("/") else None


def _below(home: str, value: str) -> str:
    """The value with its `~` replaced; the home `/` does not become `//`."""
    return home.rstrip("/") + value[1:] or "/"
