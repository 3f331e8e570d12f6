"""The page that a person reads: how everything stands, as one HTML document that needs no script.

Only sums are shown: never the name of a scope, a row, a session or a person, nor the text of an
error, which may hold one. Nothing is fetched from anywhere, and nothing runs in
the reader's browser.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Final

from worker.concerns import LEVELS, Concern, Level, concerns
from worker.markup import Markup, badge, element, even, joined, section, spaced, time_of
from worker.page_tables import jobs, ledger
from worker.standing import Standing
from worker.wording import counted

STYLE: Final = resources.files("worker").joinpath("page.css").read_text(encoding="utf-8")
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
# WHY a hash: with it the page's own style is allowed, and none that somebody else puts into it.
CONTENT_SECURITY_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_SIGNS: Final[dict[Level, str]] = {"error": "Error", "warning": "Warning", "note": "Note"}


def render(standing: Standing) -> str:
    """The whole document."""
    found = concerns(standing)
    _, headline, _ = _headline(standing, found)
    return "<!doctype html>\n" + element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="color-scheme", content="light dark"),
            element("title", f"{headline} - Sema maintenance"),
            element("style", Markup(STYLE)),
        ),
        element(
            "body",
            _top(standing, found),
            element("main", *_concerns(found), jobs(standing), ledger(standing)),
            _foot(),
        ),
        lang="en",
    )


def _headline(standing: Standing, found: Sequence[Concern]) -> tuple[str, str, str]:
    """The level of the worst there is, the state in a few words, and what there is of what."""
    pressing = [concern for concern in found if concern.level != "note"]
    counts = ", ".join(
        counted(number, level)
        for level in LEVELS
        if (number := sum(concern.level == level for concern in found))
    )
    if not standing.read.answers:
        return "error", "The database cannot be used", counts
    if not pressing:
        known = standing.past is not None and standing.present is not None
        if not known:
            return "note", "Figures are being read", counts
        return "good", "All is well", counts or "Nothing needs attention."
    things = "thing needs" if len(pressing) == 1 else "things need"
    return pressing[0].level, f"{len(pressing)} {things} attention", counts


def _top(standing: Standing, found: Sequence[Concern]) -> Markup:
    level, headline, counts = _headline(standing, found)
    return element(
        "header",
        element(
            "div",
            element("h1", "Sema maintenance"),
            element("span", f"version {standing.version}", class_="soft"),
            element(
                "span",
                "Made at ",
                time_of(standing.now, standing.now, dated=True),
                " UTC. It does not change by itself: ",
                element("a", "load it again", href="./"),
                class_="soft",
            ),
            class_="top",
        ),
        element(
            "div",
            element("strong", headline),
            element("p", counts),
            element("p", _database(standing)),
            class_=f"state {level}",
        ),
    )


def _database(standing: Standing) -> Markup:
    pulse = standing.read.pulse
    since = standing.when(pulse.since_s)
    if standing.read.answers:
        if since is None:
            return Markup("The database answers.")
        return joined(
            [
                "The database answers, as it has since ",
                time_of(since, standing.now),
                " UTC at least.",
            ]
        )
    answered = standing.when(pulse.age_s)
    if answered is None:
        return Markup("It has given nothing since this process began to ask.")
    return joined(["It last answered at ", time_of(answered, standing.now), " UTC."])


def _concerns(found: Sequence[Concern]) -> list[Markup]:
    if not found:
        return []
    items = [
        element(
            "li",
            element(
                "h3",
                badge(_SIGNS[each.level], each.level),
                f" {each.what}",
            ),
            element("p", each.meaning),
            *_commands(each.commands),
            class_=each.level,
        )
        for each in found
    ]
    return [section("attention", "What to look at", element("ul", *items, class_="concerns"))]


def _commands(commands: Sequence[str]) -> list[Markup]:
    if not commands:
        return []
    items = (element("li", _command(command)) for command in commands)
    return [element("ul", *items, class_="commands")]


def _command(command: str) -> Markup:
    """What to type; where it takes two lines, none of its words is broken."""
    return element("code", *spaced([even(word) for word in command.split()]))


def _foot() -> Markup:
    links = (element("a", name, href=f"./{name}") for name in ("metrics", "healthz", "readyz"))
    return element(
        "footer",
        element(
            "p",
            "Sums only: scopes and rows are named at the command line, which begins with ",
            element("code", "sema-maintenance --help"),
            ".",
            class_="soft",
        ),
        element("nav", *spaced([*links]), aria_label="For programs", class_="top"),
    )
