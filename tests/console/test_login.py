"""Logging in to the console, and what a session may do."""

from playwright.async_api import Browser, expect

from tests.console.conftest import Fleet
from tests.console.visitor import Visitor, visiting
from tests.support.carillon import ADMIN_TOKEN


async def test_a_link_logs_in_once(stranger: Visitor, fleet: Fleet, browser: Browser) -> None:
    """The code is taken out of the address; a second browser with the same link has to log in."""
    code = (await fleet.carillon.call("POST", "/session/codes/", 201))["code"]
    await stranger.open(f"/schedules#code={code}")
    await expect(stranger.page.get_by_role("heading", name="Schedules")).to_be_visible()
    assert f"{fleet.origin}/console/schedules" == stranger.page.url
    async with visiting(browser, fleet.origin) as second:
        await second.open(f"/schedules#code={code}")
        await expect(second.page.get_by_label("API token")).to_be_visible()


async def test_a_token_logs_in_and_scripts_cannot_read_it(stranger: Visitor) -> None:
    """A wrong one is refused in words; the page keeps neither the token nor a readable cookie."""
    page = stranger.page
    await stranger.open("/settings")
    await page.get_by_label("API token").fill("wrong")
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("alert")).to_contain_text("not valid")
    await page.get_by_label("API token").fill(ADMIN_TOKEN)
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("heading", name="Settings")).to_be_visible()
    kept = await page.evaluate("() => document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)")
    assert ADMIN_TOKEN not in kept
    assert "carillon=" not in kept


async def test_logging_out_ends_the_session(visitor: Visitor) -> None:
    """The login page is back, and the address behind it needs a login."""
    await visitor.page.get_by_role("button", name="Log out").click()
    await expect(visitor.page.get_by_label("API token")).to_be_visible()
    await visitor.open("/schedules")
    await expect(visitor.page.get_by_label("API token")).to_be_visible()


async def test_an_expired_session_keeps_what_was_typed(visitor: Visitor, fleet: Fleet) -> None:
    """The login is shown over the form; after it the form can be saved as it was."""
    page = visitor.page
    await visitor.open("/schedules/new")
    await page.get_by_label("Name").fill("typed before the session ended")
    await page.context.clear_cookies()
    await page.get_by_role("button", name="Save").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("nothing you typed is lost")
    await dialog.get_by_label("API token").fill(ADMIN_TOKEN)
    await dialog.get_by_role("button", name="Log in").click()
    await expect(dialog).to_be_hidden()
    await expect(page.get_by_label("Name")).to_have_value("typed before the session ended")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", name="typed before the session ended")).to_be_visible()


async def test_a_forbidden_button_says_which_scope_it_needs(stranger: Visitor, fleet: Fleet) -> None:
    """It stays visible and can be reached by keyboard, but does nothing."""
    reader = await fleet.carillon.call("POST", "/tokens/", 201, json={"name": "reader", "scopes": ["read"]})
    await stranger.log_in(fleet.carillon.with_token(reader["token"]))
    await stranger.open(f"/schedules/{fleet.schedules['month end']['id']}")
    button = stranger.page.get_by_role("button", name="Pause")
    await expect(button).to_have_attribute("aria-disabled", "true")
    await expect(button).to_have_attribute("title", "Needs the scope operate.")
    await button.click(force=True)
    await expect(stranger.page.get_by_role("dialog")).to_have_count(0)


async def test_sessions_are_listed_and_others_can_be_ended(visitor: Visitor, fleet: Fleet, browser: Browser) -> None:
    """The own one is marked."""
    async with visiting(browser, fleet.origin, user_agent="Another browser") as other:
        await other.log_in(fleet.carillon)
        await visitor.open("/sessions")
        row = visitor.page.get_by_role("row").filter(has_text="Another browser")
        await row.get_by_role("button", name="End session").click()
        await expect(row).to_have_count(0)
        await expect(visitor.page.get_by_text("this one")).to_be_visible()
        await other.open("/schedules")
        await expect(other.page.get_by_label("API token")).to_be_visible()
