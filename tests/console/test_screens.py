"""Every screen in a real browser: no error, no request elsewhere, nothing that axe finds, in every theme."""

import re
from functools import partial
from urllib.parse import quote_plus

import pytest
from playwright.async_api import Browser, Route, expect

from tests.console.conftest import Fleet
from tests.console.example_data import ODD_NAMES
from tests.console.visitor import PHONE, Visitor, visiting

PAGES = (
    "/overview",
    "/schedules",
    "/schedules/new",
    "/schedules/{id}",
    "/schedules/{id}?tab=runs",
    "/schedules/{id}?tab=edit",
    "/schedules/{id}?tab=history",
    "/upcoming",
    "/upcoming?view=week",
    "/load",
    "/workflows",
    "/workflows/1",
    "/workflows/1?tab=figures",
    "/workflows/1?tab=history",
    "/runs",
    "/runs/{run}",
    "/breakers",
    "/limits",
    "/calendars",
    "/audit",
    "/agents",
    "/settings",
    "/sessions",
    "/nothing-here",
)
MAIN_PAGES = ("/schedules", "/schedules/{id}", "/schedules/{id}?tab=edit")
PHONE_PAGES = (*MAIN_PAGES, "/schedules/{id}?tab=explain&at={slot}", "/limits", "/upcoming?view=week")


async def problems_of(
    visitor: Visitor, fleet: Fleet, pages: tuple[str, ...], *, has_contrast: bool = False
) -> dict[str, list[str]]:
    """Go to pages one after another and return what is wrong, by page; ``has_contrast`` adds that theme."""
    schedule = fleet.schedules["import"]
    run = (await fleet.carillon.runs(schedule))[0]
    found = {}
    for page in pages:
        await visitor.go(page.format(id=schedule["id"], run=run["id"], slot=quote_plus(run["scheduled_for"])))
        await visitor.page.get_by_role("heading", level=1).wait_for()
        await expect(visitor.page.get_by_text("Loading …")).to_have_count(0)
        problems = [*await visitor.problems_in_both_themes(), *await visitor.width_problems()]
        if has_contrast:
            problems += await visitor.problems_in_high_contrast()
        if problems:
            found[page] = problems
    return found


@pytest.mark.parametrize("pages", [PAGES[::2], PAGES[1::2]], ids=["even", "odd"])
async def test_every_page_can_be_used_by_everybody(stranger: Visitor, fleet: Fleet, pages: tuple[str, ...]) -> None:
    """Colours have enough contrast in every theme, everything has a name and a role; the login page too."""
    await stranger.open("/")
    await stranger.page.get_by_label("API token").wait_for()
    assert [] == await stranger.accessibility_problems()
    await stranger.log_in(fleet.carillon)
    assert {} == await problems_of(stranger, fleet, pages, has_contrast=True)


async def test_high_contrast_and_german(visitor: Visitor, fleet: Fleet) -> None:
    """Both are chosen in the bar and are remembered."""
    page = visitor.page
    await page.get_by_label("Theme").select_option("contrast")
    await page.get_by_label("Language").select_option("de")
    link = page.get_by_role("link", name="Zeitpläne", exact=True)
    await expect(link).to_be_visible()
    await page.reload()
    await expect(link).to_be_visible()
    assert "de" == await page.get_attribute("html", "lang")
    assert {} == await problems_of(visitor, fleet, MAIN_PAGES)


async def test_the_list_and_a_schedule_fit_a_phone(browser: Browser, fleet: Fleet) -> None:
    """Nothing is wider than the screen, and axe finds nothing there either."""
    async with visiting(browser, fleet.origin, viewport=PHONE) as visitor:
        await visitor.log_in(fleet.carillon)
        assert {} == await problems_of(visitor, fleet, PHONE_PAGES)


async def test_a_phone_shows_strips_and_where_it_is(browser: Browser, fleet: Fleet) -> None:
    """A row has its strip and its next run below the name; the link of the open page is in view."""
    async with visiting(browser, fleet.origin, viewport=PHONE) as visitor:
        await visitor.log_in(fleet.carillon, "/schedules?q=heartbeat")
        row = visitor.page.get_by_role("row", name="heartbeat")
        await expect(row.get_by_role("img", name="Slots of heartbeat")).to_be_visible()
        await expect(row.locator(".next time")).to_be_visible()
        await visitor.go("/settings")
        await expect(visitor.page.get_by_role("link", name="Settings", exact=True)).to_be_in_viewport()


async def test_the_palette_shows_icons(visitor: Visitor, fleet: Fleet) -> None:
    """Each action that the server offers has the icon and the colour that the server names."""
    await visitor.open("/workflows/new")
    palette = visitor.page.get_by_role("region", name="Add a step")
    for action in (await fleet.carillon.call("GET", "/actions/"))["items"]:
        icon = palette.get_by_role("button", name=action["title"], exact=True).locator(".action-icon")
        await expect(icon.locator(f"svg.lucide-{action['icon']}")).to_be_visible()
        red, green, blue = (int(action["color"][place : place + 2], 16) for place in (1, 3, 5))
        await expect(icon).to_have_css("background-color", f"rgb({red}, {green}, {blue})")


async def test_odd_names_are_harmless_and_legible(visitor: Visitor, fleet: Fleet) -> None:
    """Markup, right-to-left text and 255 characters are shown as they are, in the list and on their pages."""
    await visitor.open("/schedules")
    for name in ODD_NAMES:
        await expect(visitor.page.get_by_role("link", name=name, exact=True)).to_be_visible()
    for name in ODD_NAMES:
        await visitor.open(f"/schedules/{fleet.schedules[name]['id']}")
        await expect(visitor.page.get_by_role("heading", level=1)).to_have_text(name)


async def test_a_filter_is_part_of_the_address(visitor: Visitor) -> None:
    """A facet writes it into the search; opening the address shows the same rows."""
    page = visitor.page
    await visitor.open("/schedules")
    await page.get_by_role("button", name="Paused").click()
    await expect(page.get_by_role("searchbox")).to_have_value("health:paused")
    await expect(page.get_by_role("link", name="paused for maintenance")).to_be_visible()
    await expect(page.get_by_role("link", name="month end")).to_have_count(0)
    assert page.url.endswith("/console/schedules?q=health%3Apaused")
    await page.reload()
    await expect(page.get_by_role("link", name="paused for maintenance")).to_be_visible()
    await expect(page.get_by_role("link", name="month end")).to_have_count(0)


async def test_what_an_older_server_lacks_is_said(visitor: Visitor) -> None:
    """A call that the server has no path for leaves a sentence in its place, and the page goes on."""
    answer = {"detail": "There is nothing at this path. `/schema` lists all calls."}
    await visitor.page.route("**/api/v1/forecast/", lambda route: route.fulfill(status=404, json=answer))
    await visitor.open("/load")
    await expect(visitor.page.get_by_role("alert")).to_contain_text("This server cannot do this yet")


async def test_a_stale_tab_says_so(visitor: Visitor) -> None:
    """After an upgrade the served build is another one than that of the page."""
    await visitor.page.route("**/console/version.json", lambda route: route.fulfill(json={"build": "newer"}))
    await visitor.open("/schedules")
    await expect(visitor.page.get_by_text("A newer version of this page is available.")).to_be_visible()
    await visitor.page.evaluate("() => { window.isStale = true }")
    await visitor.page.get_by_role("button", name="Reload").click()
    await visitor.page.wait_for_function("() => !window.isStale")


async def test_a_part_of_the_page_that_an_upgrade_removed_loads_the_new_page(visitor: Visitor) -> None:
    """The file is 404 after the upgrade; the page loads itself again and goes where the link led."""
    await visitor.open("/overview")
    await visitor.page.get_by_role("heading", level=1, name="Overview").wait_for()
    await visitor.page.route("**/console/assets/Limits-*.js", lambda route: route.fulfill(status=404), times=1)
    await visitor.page.get_by_role("link", name="Limits").click()
    await expect(visitor.page.get_by_role("heading", level=1, name="Limits")).to_be_visible()
    visitor.errors.clear()


async def test_a_server_that_is_busy_is_a_quiet_banner(visitor: Visitor) -> None:
    """What is there stays there, and no dialog or alert is in the way."""
    await visitor.page.route(
        "**/api/v1/overview/", lambda route: route.fulfill(status=503, json={"code": "unavailable"})
    )
    await visitor.open("/schedules")
    await expect(visitor.page.locator(".banner")).to_contain_text("The server is busy or its database is away.")
    await expect(visitor.page.get_by_role("link", name="month end")).to_be_visible()
    await expect(visitor.page.get_by_role("alert")).to_have_count(0)


async def test_words_of_a_newer_server_are_shown_as_they_are(visitor: Visitor, fleet: Fleet) -> None:
    """A health, an outcome, a check, a status and an action that this page does not know are shown by their names."""

    async def renamed(route: Route, words: dict[str, str]) -> None:
        text = await (await route.fetch()).text()
        for old, new in words.items():
            text = re.sub(f'"{old}":("[a-z_]+"|null)', f'"{old}":"{new}"', text)
        await route.fulfill(body=text, content_type="application/json")

    path = f"/schedules/{fleet.schedules['import']['id']}"
    newer = {
        f"**{path}/": {"health": "hibernating", "status": "hibernating"},
        f"**{path}/slots/*": {"outcome": "teleported", "status": "teleported"},
        f"**{path}/explain/*": {"outcome": "beamed", "check": "moon"},
        f"**{path}/runs/*": {"status": "evaporated", "trigger": "moonlight"},
        "**/api/v1/audit/*": {"action": "schedule_teleported", "via": "telepathy"},
    }
    for address, words in newer.items():
        await visitor.page.route(address, partial(renamed, words=words))
    page = visitor.page
    await visitor.open(f"{path}?tab=explain")
    await expect(page.locator(".head .badge")).to_contain_text("hibernating")
    for word in ("beamed", "moon"):
        await expect(page.get_by_text(word, exact=True).first).to_be_visible()
    strip = page.get_by_role("slider", name="Slots of import")
    await expect(strip).to_have_attribute("aria-valuetext", re.compile("teleported"))
    for tab, word in (("runs", "evaporated"), ("history", "schedule teleported")):
        await visitor.go(f"{path}?tab={tab}")
        await expect(page.get_by_text(word).first).to_be_visible()
    await visitor.page.unroute_all(behavior="ignoreErrors")
