"""The shipped rule file, read as what it is written as: one alert after the other."""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).parents[2]
RULES: Final = CHECKOUT / "deploy/helm/sema-maintenance/files/rules/sema-maintenance.yaml"
CASES: Final = Path(__file__).parent / "cases"
_FOR: Final = re.compile(r"^(        for: )\S+$", re.MULTILINE)


@dataclass(frozen=True)
class Alert:
    """One alert; `expr` without the comments above it."""

    name: str
    expr: str
    severity: str
    summary: str
    description: str
    runbook_url: str


def _after(key: str, text: str) -> str:
    """The value of a key: what stands on its line, or the block below it, as one text."""
    found = re.search(rf"^( *){key}: ?([|>]-?)?(.*)\n((?:\1  .*\n)*)", text, re.MULTILINE)
    if found is None:
        return ""
    return found[3].strip().strip('"') or textwrap.dedent(found[4]).strip()


def alerts() -> list[Alert]:
    """Every alert that is shipped."""
    texts = re.split(r"^      - alert: ", RULES.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [
        Alert(
            text.partition("\n")[0],
            *(
                _after(key, text)
                for key in ("expr", "severity", "summary", "description", "runbook_url")
            ),
        )
        for text in texts[1:]
    ]


def shortened(rules: str, patience: str) -> str:
    """The same rules, each of which waits only so long where it waits at all."""
    return _FOR.sub(rf"\g<1>{patience}", rules)
