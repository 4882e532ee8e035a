"""The live pulse in the console: counts and visible rows, streams that end, Redis away."""

from msgspec.structs import replace
from playwright.async_api import Browser, expect

from tests.console.conftest import Fleet
from tests.console.visitor import Visitor, visiting
from tests.support.api_server import serving
from tests.support.carillon import ADMIN_TOKEN


async def test_rows_follow_changes_without_jumping(visitor: Visitor, fleet: Fleet) -> None:
    """A change of somebody else is seen soon; a new schedule waits behind a button, a deleted one is marked."""
    page, carillon = visitor.page, fleet.carillon
    watched = await carillon.schedule(name="watched row", cron="0 5 * * *")
    await visitor.go("/schedules")
    row = page.get_by_role("row").filter(has_text="watched row")
    await expect(row).to_contain_text("Never ran")
    await expect(page.get_by_text("Live", exact=True)).to_be_visible()
    await carillon.call("POST", f"/schedules/{watched['id']}/pause/")
    await expect(row).to_contain_text("Paused")
    await carillon.schedule(name="made meanwhile", cron="0 5 * * *")
    await expect(page.get_by_role("link", name="made meanwhile")).to_have_count(0)
    await page.get_by_role("button", name="1 newer").click()
    await expect(page.get_by_role("link", name="made meanwhile")).to_be_visible()
    await carillon.call("DELETE", f"/schedules/{watched['id']}/", 204)
    await expect(row).to_contain_text("Deleted")


async def test_a_session_that_is_ended_elsewhere_asks_for_login(visitor: Visitor, fleet: Fleet) -> None:
    """The stream ends with the session, and the page asks at once; the search that was typed stays."""
    page = visitor.page
    await visitor.go("/schedules")
    await expect(page.get_by_text("Live", exact=True)).to_be_visible()
    await page.get_by_role("searchbox").fill("half typed")
    for session in (await fleet.carillon.call("GET", "/sessions/"))["items"]:
        await fleet.carillon.call("DELETE", f"/sessions/{session['id']}/", 204)
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("API token").fill(ADMIN_TOKEN)
    await dialog.get_by_role("button", name="Log in").click()
    await expect(dialog).to_be_hidden()
    await expect(page.get_by_role("searchbox")).to_have_value("half typed")
    await expect(page.get_by_text("Live", exact=True)).to_be_visible()


async def test_without_redis_and_without_a_server_the_page_goes_on(browser: Browser, fleet: Fleet) -> None:
    """Pulses come from the database alone; when the server stops the page says so and asks again."""
    settings = replace(fleet.carillon.settings, redis_url="redis://127.0.0.1:1/0")
    async with visiting(browser, "") as visitor:
        async with serving(settings) as carillon:
            visitor.origin = str(carillon._client.base_url).rstrip("/")
            await visitor.log_in(carillon)
            await expect(visitor.page.get_by_text("Live, Redis is away")).to_be_visible()
            await expect(visitor.page.get_by_text("workers poll the database")).to_be_visible()
        await expect(visitor.page.get_by_text("every 10 s")).to_be_visible()
        await expect(visitor.page.get_by_text("The page tries again by itself.").first).to_be_visible()
        visitor.errors.clear()
