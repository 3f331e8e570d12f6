"""Write the chart's tables of values and its schema's descriptions from values.yaml's comments.

    python deploy/tools/chart_docs.py            # --check: only say whether they are in step

A comment that begins with `# --` describes the key that follows it.
"""

import json
import re
import sys
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

CHART = Path(__file__).parents[1] / "helm" / "sema-maintenance"
_KEY = re.compile(r"( *)([A-Za-z][\w-]*):")
_COMMENT = re.compile(r" *# ?(-- )?(.*)")
_BEGIN, _END = "<!-- values: begin -->", "<!-- values: end -->"


class Value(NamedTuple):
    """One value that may be set: where it stands, what it does, and what it is without."""

    path: tuple[str, ...]
    meaning: str
    default: Any


def described(text: str) -> dict[tuple[str, ...], str]:
    """Each described key of a values file, in its order."""
    found: dict[tuple[str, ...], str] = {}
    above: list[tuple[int, str]] = []
    pending: list[str] = []
    for line in text.splitlines():
        if key := _KEY.match(line):
            indent = len(key[1])
            above = [each for each in above if each[0] < indent] + [(indent, key[2])]
            if pending:
                found[tuple(name for _, name in above)] = " ".join(pending)
            pending = []
        elif (comment := _COMMENT.fullmatch(line)) and (pending or comment[1]):
            pending = [comment[2]] if comment[1] else [*pending, comment[2]]
        else:
            pending = []
    return found


def leaves(
    tree: dict[str, Any], known: Container[tuple[str, ...]], above: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Where values stand: a described map is one, the keys of any other are looked through."""
    for key, value in tree.items():
        path = (*above, key)
        if path in known or not isinstance(value, dict):
            yield path
        else:
            yield from leaves(value, known, path)


def values() -> list[Value]:
    """All of the chart's, in the file's order."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    tree = yaml.safe_load(text)
    return [Value(path, meaning, _at(tree, path)) for path, meaning in described(text).items()]


def _at(tree: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def readme(before: str) -> str:
    """The README with its tables anew."""
    head, rest = before.split(_BEGIN)
    tail = rest.split(_END)[1]
    return f"{head}{_BEGIN}\n\n{_tables()}\n{_END}{tail}"


def _tables() -> str:
    groups: dict[str, list[str]] = {}
    for value in values():
        group = value.path[0] if len(value.path) > 1 else "Of everything"
        shown = json.dumps(value.default, ensure_ascii=False)
        meaning = value.meaning.replace("|", "\\|")
        row = f"| `{'.'.join(value.path)}` | `{shown}` | {meaning} |"
        groups.setdefault(group, []).append(row)
    head = "| value | default | meaning |\n|---|---|---|\n"
    return "\n".join(
        f"### {name}\n\n{head}" + "\n".join(rows) + "\n" for name, rows in groups.items()
    )


def schema(before: str) -> str:
    """The schema with its descriptions anew; beside a $ref, editors show them all the same."""
    document = json.loads(before)
    meanings = {value.path: value.meaning for value in values()}
    for path, node in _properties(document, ()):
        node.pop("description", None)
        if path in meanings:
            node["description"] = meanings[path]
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _properties(
    node: dict[str, Any], above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    for key, inner in node.get("properties", {}).items():
        yield (*above, key), inner
        yield from _properties(inner, (*above, key))


def main() -> int:
    """Write both; with --check, 1 and a line for each that is not in step."""
    stale = 0
    for name, make in (("README.md", readme), ("values.schema.json", schema)):
        file = CHART / name
        before = file.read_text(encoding="utf-8")
        after = make(before)
        if "--check" not in sys.argv[1:]:
            file.write_text(after, encoding="utf-8")
        elif after != before:
            stale = 1
            print(f"{name} is not in step: run {Path(__file__).name}", file=sys.stderr)  # noqa: T201
    return stale


if __name__ == "__main__":
    sys.exit(main())
