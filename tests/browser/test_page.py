"""The page in a real browser: it can be read in light and dark, on a phone, and by everybody."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, ViewportSize

from worker.http import Served

Scheme = Literal["light", "dark"]
STATES = ("well", "troubled", "cut off", "never there")
LOOKS: dict[str, tuple[Scheme, int, int]] = {
    "light": ("light", 1280, 900),
    "dark": ("dark", 1280, 900),
    "phone": ("light", 360, 740),
    "phone-dark": ("dark", 360, 740),
}
ALL_OF_IT = "document.querySelectorAll('details').forEach(each => { each.open = true; })"


@contextmanager
def opened(browser: Browser, served: Served, look: str = "light", **options: Any) -> Iterator[Page]:
    """The page as it looks there. Whatever the browser complains of fails the test."""
    scheme, width, height = LOOKS[look]
    viewport = ViewportSize(width=width, height=height)
    context = browser.new_context(color_scheme=scheme, viewport=viewport, **options)
    complaints: list[str] = []
    asked: list[str] = []
    try:
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"http://{served.address}/")
        yield page
        assert complaints == []
        assert asked == [f"http://{served.address}/"]
    finally:
        context.close()


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("state", STATES)
def test_page_can_be_read_by_everybody(
    chromium: Browser, pages: dict[str, Served], state: str, look: str, tmp_path: Path
) -> None:
    """No rule of axe-core is broken, nothing is beside the screen, and a picture is kept."""
    with opened(chromium, pages[state], look) as page:
        page.screenshot(path=tmp_path / f"{state}-{look}.png", full_page=True)
        page.evaluate(ALL_OF_IT)

        found = Axe().run(page).response
        # WHY these as well: contrast is left undecided where something lies over the words.
        assert [each["id"] for each in found["incomplete"]] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= LOOKS[look][1]
        page.screenshot(path=tmp_path / f"{state}-{look}-all.png", full_page=True)


@pytest.mark.parametrize("state", STATES)
def test_page_fits_every_width(chromium: Browser, pages: dict[str, Served], state: str) -> None:
    """From a small phone to a wide screen, nobody has to move it sideways."""
    with opened(chromium, pages[state]) as page:
        page.evaluate(ALL_OF_IT)
        for width in (320, 360, 480, 600, 768, 900, 929, 960, 1024, 1100, 1920):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_dark_is_dark_and_light_is_light(chromium: Browser, pages: dict[str, Served]) -> None:
    """The page follows what its reader has set, by a style that its own policy lets through."""
    brightness = {}
    for look in ("light", "dark"):
        with opened(chromium, pages["well"], look) as page:
            colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
            brightness[look] = sum(map(int, colour.removeprefix("rgb(").rstrip(")").split(",")))

    assert brightness["light"] > 600
    assert brightness["dark"] < 150


def test_page_needs_no_script(chromium: Browser, pages: dict[str, Served]) -> None:
    """With scripts off it says the same, and what is folded away opens."""
    with opened(chromium, pages["well"], java_script_enabled=False) as page:
        assert page.locator("header strong").inner_text() == "All is well"
        assert not page.get_by_text("The newest runs of each job").is_visible()
        page.locator("summary").click()
        assert page.get_by_text("The newest runs of each job").is_visible()


@pytest.mark.parametrize("look", ["light", "phone"])
def test_table_stays_a_table_for_whoever_cannot_see_it(
    chromium: Browser, pages: dict[str, Served], look: str
) -> None:
    """Also on a phone, where its rows are laid out as blocks."""
    with opened(chromium, pages["well"], look) as page:
        jobs = page.get_by_role("region", name="Jobs").get_by_role("table").first

        assert jobs.get_by_role("columnheader", include_hidden=True).all_inner_texts() == [
            "Job",
            "When",
            "Last run",
            "Did",
            "Waiting",
        ]
        row = jobs.get_by_role("row").filter(has=page.get_by_role("rowheader", name="reap"))
        assert row.get_by_role("cell").count() == 4


def test_it_can_be_gone_through_by_keyboard(chromium: Browser, pages: dict[str, Served]) -> None:
    """The first stop is what loads it again, and loading it again is no dead end."""
    with opened(chromium, pages["never there"]) as page:
        page.keyboard.press("Tab")
        focused = "document.activeElement.textContent"
        assert page.evaluate(focused) == "load it again"
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none"
        assert page.get_by_role("link", name="load it again").get_attribute("href") == "./"
