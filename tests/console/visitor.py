"""Somebody who uses the console with a browser, and notices every error of a page."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import Browser as PlaywrightBrowser
from playwright.async_api import BrowserContext, ConsoleMessage, Page, Request, async_playwright, expect

from tests.console.chromium import ARGUMENTS, WEB, find_browser
from tests.support.carillon import Carillon

# The browser itself reports answers that the page expects: no session yet, or a call that the server does not have.
EXPECTED = re.compile(r"Failed to load resource: the server responded with a status of (401|404|405|409|412|422|503)")
AXE = WEB / "node_modules" / "axe-core" / "axe.min.js"
DESKTOP = {"width": 1360, "height": 860}
PHONE = {"width": 390, "height": 844}
# A busy machine takes its time.
PATIENCE_MS = 30_000


class Visitor:
    """A page, and what went wrong on it."""

    def __init__(self, page: Page, origin: str) -> None:
        self.page = page
        self.origin = origin
        self.errors: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.errors.append(f"page error: {error}"))
        page.on("request", self._on_request)

    async def open(self, path: str) -> None:
        """Load an address of the console."""
        await self.page.goto(f"{self.origin}/console{path}")

    async def go(self, path: str) -> None:
        """Go to an address of the console without loading it anew, as a link does."""
        address = f"/console{path}"
        await self.page.evaluate("path => { history.pushState({}, '', path) }", address)
        shown = "path => document.querySelector('main')?.dataset.shown === path"
        await self.page.wait_for_function(shown, arg=path)

    async def log_in(self, carillon: Carillon, path: str = "/") -> None:
        """Open the console with a one-time code."""
        code = (await carillon.call("POST", "/session/codes/", 201))["code"]
        await self.open(f"{path}#code={code}")
        await self.page.get_by_role("navigation", name="Main").wait_for()

    async def accessibility_problems(self, *rules: str) -> list[str]:
        """Return what axe finds wrong with the page as it is now, by these rules or by all of them."""
        if not await self.page.evaluate("() => 'axe' in window"):
            await self.page.evaluate(AXE.read_text())
        run = "async (rules) => (await axe.run(rules.length ? {runOnly: rules} : {})).violations"
        found: list[dict[str, Any]] = await self.page.evaluate(run, list(rules))
        return [
            f"{violation['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
            for violation in found
            for node in violation["nodes"][:3]
        ]

    async def problems_in_both_themes(self) -> list[str]:
        """Return what axe finds wrong with the page: all rules when it is light, contrast when it is dark."""
        found = await self.accessibility_problems()
        await self.page.emulate_media(color_scheme="dark")
        found += [f"(dark) {problem}" for problem in await self.accessibility_problems("color-contrast")]
        await self.page.emulate_media(color_scheme="light")
        return found

    async def problems_in_high_contrast(self) -> list[str]:
        """Return what axe finds wrong with the colours of the theme with high contrast."""
        await self.page.evaluate("() => { document.documentElement.dataset.theme = 'contrast' }")
        found = [f"(contrast) {problem}" for problem in await self.accessibility_problems("color-contrast")]
        await self.page.evaluate("() => { document.documentElement.dataset.theme = 'auto' }")
        return found

    async def width_problems(self) -> list[str]:
        """Say whether the page is wider than the screen."""
        excesses: list[int] = await self.page.evaluate(
            "() => [...document.querySelectorAll('html, main')].map(one => one.scrollWidth - one.clientWidth)"
        )
        return [f"{excess} px wider than the screen" for excess in excesses if excess > 0]

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not EXPECTED.match(message.text):
            self.errors.append(f"console: {message.text}")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.origin, "data:", "blob:")):
            self.errors.append(f"left the origin: {request.url}")


@asynccontextmanager
async def open_browser() -> AsyncIterator[PlaywrightBrowser]:
    """Run a browser."""
    found = find_browser()
    expect.set_options(timeout=PATIENCE_MS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=found.program, args=ARGUMENTS, env=dict(found.environ), timeout=PATIENCE_MS
        )
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def visiting(browser: PlaywrightBrowser, origin: str, **options: Any) -> AsyncIterator[Visitor]:
    """Open a page of a new visitor, without cookies; at the end it must have had no error."""
    context: BrowserContext = await browser.new_context(
        **{"viewport": DESKTOP, "locale": "en-GB", "timezone_id": "UTC", "reduced_motion": "reduce", **options}
    )
    context.set_default_timeout(PATIENCE_MS)
    try:
        visitor = Visitor(await context.new_page(), origin)
        yield visitor
        assert [] == visitor.errors
    finally:
        await context.close()
