"""Every screen in a real browser: no error, no request elsewhere, nothing that axe finds, in every theme."""

from playwright.async_api import Browser, expect

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


async def problems_of(visitor: Visitor, fleet: Fleet, pages: tuple[str, ...]) -> dict[str, list[str]]:
    """Go to pages one after another and return what axe finds wrong, by page."""
    schedule = fleet.schedules["import"]
    run = (await fleet.carillon.runs(schedule))[0]["id"]
    found = {}
    for page in pages:
        await visitor.go(page.format(id=schedule["id"], run=run))
        await visitor.page.get_by_role("heading", level=1).wait_for()
        await expect(visitor.page.get_by_text("Loading …")).to_have_count(0)
        if problems := await visitor.problems_in_both_themes():
            found[page] = problems
    return found


async def test_every_page_can_be_used_by_everybody(stranger: Visitor, fleet: Fleet) -> None:
    """Colours have enough contrast, light and dark, everything has a name and a role; the login page too."""
    await stranger.open("/")
    await stranger.page.get_by_label("API token").wait_for()
    assert [] == await stranger.accessibility_problems()
    await stranger.log_in(fleet.carillon)
    assert {} == await problems_of(stranger, fleet, PAGES)


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
        assert {} == await problems_of(visitor, fleet, MAIN_PAGES)
        width = await visitor.page.evaluate("() => document.documentElement.scrollWidth")
        assert PHONE["width"] == width


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
    """A call that answers 404 leaves a sentence in its place, and the page goes on."""
    await visitor.page.route("**/api/v1/forecast/", lambda route: route.fulfill(status=404, body="{}"))
    await visitor.open("/load")
    await expect(visitor.page.get_by_role("alert")).to_contain_text("This server cannot do this yet")


async def test_a_stale_tab_says_so(visitor: Visitor) -> None:
    """After an upgrade the served build is another one than that of the page."""
    await visitor.page.route("**/console/version.json", lambda route: route.fulfill(json={"build": "newer"}))
    await visitor.open("/schedules")
    await expect(visitor.page.get_by_text("A newer version of this page is available.")).to_be_visible()
