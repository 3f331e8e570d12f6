"""Globs over scopes, and which of two that fit the same scope says more about it."""

import fnmatch
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

# As fnmatch reads a pattern: in brackets, a `]` that comes first belongs to the sequence. WHY
# possessive: nothing may be given back, since "[]" and "[!]" are brackets that nothing closes.
_PIECE = re.compile(r"\*+|\[!?+\]?+[^\]]*+\]|.", re.DOTALL)


class Specificity(NamedTuple):
    """How much a glob says about the scopes it fits: the greater one wins."""

    exact: bool  # It has no wildcard, so it fits one scope only.
    literals: int
    wildcards_negated: int


@dataclass(frozen=True)
class Glob:
    """A case-sensitive pattern on a whole scope, read as the shell reads file names.

    `*` is any text, `?` one character, `[seq]` one of these and `[!seq]` one of all others; `[*]`
    is a real star, and a bracket that nothing closes is itself.
    """

    text: str

    @cached_property
    def specificity(self) -> Specificity:
        """Its rank among the globs that fit a scope."""
        wildcards = sum(_is_wildcard(piece) for piece in self._pieces)
        return Specificity(wildcards == 0, len(self._pieces) - wildcards, -wildcards)

    @cached_property
    def prefix(self) -> str:
        """What every scope that it fits begins with; all of its text when it has no wildcard."""
        return "".join(itertools.takewhile(lambda piece: not _is_wildcard(piece), self._pieces))

    @cached_property
    def fits(self) -> Callable[[str], re.Match[str] | None]:
        """Something true for a scope that it fits, else None."""
        return re.compile(fnmatch.translate(self.text)).match

    @property
    def _pieces(self) -> list[str]:
        return _PIECE.findall(self.text)


def _is_wildcard(piece: str) -> bool:
    return len(piece) > 1 or piece in "*?"
