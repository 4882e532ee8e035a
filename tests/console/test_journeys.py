"""What people come to the console for, from beginning to end."""

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.async_api import Browser, expect
from sqlalchemy import text

from app.config import Settings
from app.persistence.database import Database
from tests.console.conftest import Fleet
from tests.console.visitor import Visitor, visiting
from tests.support.carillon import FAIL, Carillon, Json, until, working


async def test_first_minute(visitor: Visitor, fleet: Fleet) -> None:
    """A workflow on the canvas, then a schedule with a clock change in it: the warning is there before it is saved."""
    page = visitor.page
    await visitor.open("/workflows/new")
    await page.get_by_label("Name", exact=True).fill("ping the shop")
    await page.get_by_role("button", name="HTTP request").click()
    await page.get_by_label("url").fill("http://127.0.0.1:9/hook")
    await page.get_by_role("button", name="Save").click()
    await page.wait_for_url(re.compile(r"/workflows/\d+$"))
    number = page.url.rsplit("/", 1)[1]
    stored = await fleet.carillon.call("GET", f"/workflows/{number}/")
    assert [("start", {}), ("http_request", {"url": "http://127.0.0.1:9/hook"})] == [
        (node["id"], node["config"]) for node in stored["nodes"]
    ]
    await visitor.open(f"/schedules/new?workflow={number}")
    await page.get_by_label("Name").fill("nightly ping")
    await page.get_by_label("Time zone").fill("Europe/Berlin")
    await expect(page.get_by_text("the clocks in Europe/Berlin skip 02:30")).to_be_visible()
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", level=1, name="nightly ping")).to_be_visible()
    await expect(page.get_by_text("every day at 02:30 Europe/Berlin", exact=True)).to_be_visible()


async def test_why_a_slot_did_not_fire(visitor: Visitor, fleet: Fleet) -> None:
    """A slot of the strip is explained in a sentence, with the check that decided, at an address to share."""
    page = visitor.page
    await visitor.open(f"/schedules/{fleet.schedules['import']['id']}")
    strip = page.get_by_role("slider", name="Slots of import")
    await strip.focus()
    await page.keyboard.press("Home")
    await expect(strip).to_have_attribute("aria-valuenow", "1")
    while "Skipped" not in (await strip.get_attribute("aria-valuetext") or ""):
        before = await strip.get_attribute("aria-valuenow") or ""
        await page.keyboard.press("ArrowRight")
        await expect(strip).not_to_have_attribute("aria-valuenow", before)
    assert "the run before was active" in (await strip.get_attribute("aria-valuetext") or "")
    legend = page.get_by_role("list", name="Legend").get_by_role("listitem")
    await expect(legend.filter(has_text="Skipped: the run before was active").locator(".letter")).to_have_text("O")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**at=*")
    reason = page.get_by_text("an earlier execution was still active").locator("visible=true")
    await expect(reason.first).to_be_visible()
    await expect(page.locator(".sentence")).to_contain_text(re.compile(r"The slot \d{4}-\d\d-\d\d [\d:]+ UTC"))
    await expect(page.get_by_text("decided here")).to_be_visible()
    await page.reload()
    await expect(page.get_by_text("decided here")).to_be_visible()
    await expect(strip).to_have_attribute("aria-valuetext", re.compile("Skipped"))


async def test_what_is_typed_stays_while_the_page_is_refreshed(visitor: Visitor, fleet: Fleet) -> None:
    """What is being typed stays while the page behind it is refreshed."""
    schedule = await fleet.carillon.schedule(name="edited twice", cron="0 5 * * *")
    page = visitor.page
    await visitor.open(f"/schedules/{schedule['id']}?tab=edit")
    await page.get_by_label("Description").fill("typed here")
    await expect(page.get_by_text("every day at 05:00 UTC").first).to_be_visible()
    await fleet.carillon.call("PATCH", f"/schedules/{schedule['id']}/", json={"name": "renamed meanwhile"})
    await expect(page.get_by_role("heading", level=1, name="renamed meanwhile")).to_be_visible()
    await expect(page.get_by_label("Description")).to_have_value("typed here")


async def test_an_edit_of_somebody_else_is_not_overwritten(visitor: Visitor, fleet: Fleet) -> None:
    """Both versions are shown; saving mine sends what I changed and nothing else."""
    schedule = await fleet.carillon.schedule(name="edited by two", cron="0 5 * * *")
    page = visitor.page
    await visitor.open(f"/schedules/{schedule['id']}?tab=edit")
    await page.get_by_label("Description").fill("mine")
    await fleet.carillon.call("PATCH", f"/schedules/{schedule['id']}/", json={"name": "theirs"})
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Somebody else changed this schedule meanwhile.")).to_be_visible()
    await expect(page.get_by_role("row", name="name")).to_contain_text('"theirs"')
    await page.get_by_role("button", name="Save mine").click()
    await expect(page.get_by_text("Saved.")).to_be_visible()
    stored = await fleet.carillon.get(schedule)
    assert ("theirs", "mine") == (stored["name"], stored["description"])


async def test_a_workflow_of_somebody_else_is_not_overwritten(visitor: Visitor, fleet: Fleet) -> None:
    """Both versions of a workflow are shown; theirs can be taken, and mine can be saved over it."""
    workflow = await fleet.carillon.workflow(name="drawn by two")
    path = f"/workflows/{workflow['id']}/"
    page = visitor.page
    await visitor.open(f"/workflows/{workflow['id']}")
    await page.get_by_label("Name", exact=True).fill("mine")
    await fleet.carillon.call("PATCH", path, json={"name": "theirs"})
    await page.get_by_role("button", name="Save", exact=True).click()
    conflict = page.get_by_role("alert")
    await expect(conflict).to_contain_text("Somebody else changed this workflow meanwhile.")
    await expect(conflict.get_by_role("row", name="name")).to_have_text("nametheirsmine")
    assert [] == await visitor.problems_in_both_themes()
    await conflict.get_by_role("button", name="Take theirs").click()
    await expect(page.get_by_label("Name", exact=True)).to_have_value("theirs")
    await fleet.carillon.call("PATCH", path, json={"name": "theirs again"})
    await page.get_by_label("Name", exact=True).fill("mine")
    await page.get_by_role("button", name="Save", exact=True).click()
    await conflict.get_by_role("button", name="Save mine").click()
    await expect(page.get_by_text("Saved.")).to_be_visible()
    assert "mine" == (await fleet.carillon.call("GET", path))["name"]


async def test_finding_by_words_and_labels(visitor: Visitor, fleet: Fleet) -> None:
    """Words and labels find the schedules, also from the palette; an unknown filter is explained, not a crash."""
    await fleet.carillon.schedule(name="vacuum of the archive", cron="0 4 * * *", labels={"team": "storage"})
    page = visitor.page
    await visitor.go("/schedules")
    await page.get_by_role("searchbox").fill("label:team=storage vacuum")
    await expect(page.get_by_role("link", name="vacuum of the archive")).to_be_visible()
    await expect(page.get_by_role("link", name="month end")).to_have_count(0)
    filters = page.get_by_role("list", name="Filters")
    await expect(filters.get_by_role("listitem")).to_have_text("label team=storage")
    await filters.get_by_role("button", name="Remove label:team=storage").click()
    await expect(page.get_by_role("searchbox")).to_have_value("vacuum")
    await page.get_by_role("searchbox").fill("health:splendid")
    await expect(page.get_by_role("alert")).to_contain_text("health")
    await page.keyboard.press("Control+k")
    await page.get_by_role("combobox", name="Type a name").fill("vacuum of")
    await page.get_by_role("option", name="vacuum of the archive").click()
    await expect(page.get_by_role("heading", level=1, name="vacuum of the archive")).to_be_visible()


async def test_a_view_of_the_list_is_saved(visitor: Visitor) -> None:
    """A search gets a name; it stays in this browser, is an address, and can be removed."""
    page = visitor.page
    await visitor.go("/schedules?q=status%3Apaused")
    await page.get_by_role("button", name="Save this view").click()
    await page.get_by_role("dialog").get_by_label("Name").fill("<b>paused</b>")
    await page.keyboard.press("Enter")
    await visitor.open("/schedules")
    views = page.get_by_role("navigation", name="Saved views")
    await views.get_by_role("link", name="<b>paused</b>").click()
    await page.wait_for_url("**/schedules?q=status%3Apaused")
    await expect(page.get_by_role("link", name="month end")).to_have_count(0)
    assert [] == await visitor.problems_in_both_themes()
    await views.get_by_role("button", name="Remove the view").click()
    await expect(views.get_by_role("link")).to_have_count(0)


async def test_the_plan_of_an_edit_with_a_calendar(visitor: Visitor, fleet: Fleet) -> None:
    """A calendar is made in the console; the editor says which slot an edit that refers to it removes."""
    schedule = await fleet.carillon.schedule(name="every morning", cron="0 5 * * *")
    closed = (datetime.now(UTC) + timedelta(days=3)).date()
    page = visitor.page
    await visitor.go("/calendars")
    await page.get_by_role("button", name="New calendar").click()
    await page.get_by_label("Name").fill("closed")
    await page.get_by_label("Dates, one a line").fill(closed.isoformat())
    await page.get_by_role("button", name="Save").click()
    row = page.get_by_role("row", name="closed")
    await expect(row).to_contain_text(closed.isoformat())
    mia = await fleet.carillon.member("mia-with-a-calendar")
    await mia.call("POST", "/calendars/", 201, json={"name": "closed", "timezone": "Asia/Tokyo"})
    await page.reload()
    await row.filter(has_text="Tokyo").get_by_role("button", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(row).to_have_count(1)
    await expect(row).to_contain_text(closed.isoformat())
    await visitor.go(f"/schedules/{schedule['id']}?tab=edit")
    await page.get_by_text("More settings").click()
    await page.get_by_label("Not on days of these calendars").fill("closed")
    plan = page.get_by_role("region", name="What this edit does")
    await expect(plan).to_contain_text("1 slot vanishes")
    await expect(plan).to_contain_text(f"{closed} 05:00 UTC")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Saved.")).to_be_visible()
    assert ["closed"] == (await fleet.carillon.get(schedule))["exclude_calendars"]


async def test_a_plan_that_is_too_old_is_made_again(visitor: Visitor, fleet: Fleet) -> None:
    """Saving refers to the plan that is shown; one that has expired is made anew before the edit is saved."""
    schedule = await fleet.carillon.schedule(name="planned long ago", cron="0 5 * * *")
    page = visitor.page
    await visitor.go(f"/schedules/{schedule['id']}?tab=edit")
    await page.get_by_role("textbox", name="Cron").fill("30 5 * * *")
    plan = page.get_by_role("region", name="What this edit does")
    await expect(plan).to_contain_text("slots move")
    database = Database(fleet.carillon.settings.database_url, pool_size=1)
    async with database.transaction() as connection:
        await connection.execute(text("DELETE FROM edit_plans"))
    await database.close()
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("The plan has expired and was made again.")).to_be_visible()
    assert "0 5 * * *" == (await fleet.carillon.get(schedule))["cron"]
    await expect(plan).to_contain_text("slots move")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Saved.")).to_be_visible()
    assert "30 5 * * *" == (await fleet.carillon.get(schedule))["cron"]


async def test_slots_are_left_out_and_taken_back(visitor: Visitor, fleet: Fleet) -> None:
    """The next ones by their number, one by its explanation; what is left out is listed and can be undone."""
    schedule = await fleet.carillon.schedule(name="left out", cron="0 5 * * *")

    async def skipped() -> list[str]:
        params = {"ahead": 5}
        items = (await fleet.carillon.call("GET", f"/schedules/{schedule['id']}/slots/", params=params))["items"]
        return [item["slot"] for item in reversed(items) if item["outcome"] == "skipped_request"]

    page = visitor.page
    await visitor.go(f"/schedules/{schedule['id']}")
    await page.get_by_role("button", name="Skip", exact=True).click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("The next slots, how many").fill("2")
    await dialog.get_by_label("Note").fill("holidays")
    await dialog.get_by_role("button", name="Skip them").click()
    planned = dialog.get_by_role("region", name="To be left out")
    await expect(planned.get_by_role("listitem")).to_have_count(2)
    await expect(planned.get_by_role("listitem").first).to_contain_text("holidays")
    assert [] == await visitor.problems_in_both_themes()
    first, second = await skipped()
    await planned.get_by_role("button", name="Let it fire").nth(1).click()
    await expect(planned.get_by_role("listitem")).to_have_count(1)
    assert [first] == await skipped()
    await dialog.get_by_role("button", name="Close").click()
    explanation = page.get_by_role("region", name="Why did it run, or not?")
    for slot, button, left in ((first, "Let it fire", []), (second, "Skip this slot", [second])):
        await explanation.get_by_label("At").fill(slot)
        await explanation.get_by_role("button", name="Explain").click()
        await explanation.get_by_role("button", name=button).click()
        await expect(explanation.get_by_role("button", name=button)).to_be_hidden()
        assert left == await skipped()


async def test_the_work_of_an_agent_is_reviewed(visitor: Visitor, fleet: Fleet) -> None:
    """A lease is granted; what is made with it waits, is approved and adopted; at last the lease is revoked."""
    workflow = await fleet.carillon.workflow(name="sales report")
    page = visitor.page
    await visitor.go("/agents")
    await page.get_by_role("button", name="Grant a lease").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Agent").fill("reporter")
    await dialog.get_by_label("Purpose").fill("refresh the sales reports")
    await dialog.get_by_label("Runs at most").fill("100")
    assert [] == await visitor.problems_in_both_themes()
    await dialog.get_by_role("button", name="Grant").click()
    token = await dialog.get_by_label("Token of the agent").inner_text()
    await dialog.get_by_role("button", name="Close").click()
    card = page.get_by_role("region", name="Lease of reporter")
    await card.get_by_role("button", name="Change terms").click()
    await dialog.get_by_label("Runs at most").fill("200")
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog).to_be_hidden()
    agent = fleet.carillon.with_token(token)
    schedule = await agent.schedule(workflow, name="daily sales", cron="0 6 * * *", total_repeats=7)
    await page.reload()
    review = page.get_by_role("region", name="Review of reporter")
    await expect(review).to_contain_text("refresh the sales reports")
    await expect(review.get_by_role("row", name="daily sales")).to_contain_text("every day at 06:00 UTC")
    await expect(review).to_contain_text("193 of 200 left")
    await expect(review).to_contain_text("before: it does not run until it is approved")
    await agent.schedule(workflow, name="weekly sales", cron="0 6 * * 1", total_repeats=1)
    await review.get_by_role("button", name="Approve").click()
    await expect(page.get_by_text("The lease has changed meanwhile. Look again")).to_be_visible()
    assert "paused" == (await fleet.carillon.get(schedule))["status"]
    await review.get_by_role("button", name="Approve 2 schedules").click()
    await expect(review).to_be_hidden()
    assert "active" == (await fleet.carillon.get(schedule))["status"]
    await card.get_by_text("Terms and budget").click()
    await expect(card).to_contain_text("2 schedules were made with it")
    await card.get_by_role("button", name="Adopt schedules").click()
    await dialog.get_by_label("daily sales").uncheck()
    assert [] == await visitor.problems_in_both_themes()
    await dialog.get_by_role("button", name="Adopt the schedule").click()
    await expect(card).to_contain_text("1 schedule was made with it")
    await agent.schedule(workflow, name="not yet seen", cron="0 7 * * *", total_repeats=1)
    await card.get_by_role("button", name="Revoke").click()
    await page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    await expect(card).to_contain_text("Revoked")
    assert "lease_revoked" == (await fleet.carillon.get(schedule))["status_reason"]
    await expect(review).to_contain_text("The lease has ended.")
    await expect(review.get_by_role("button", name=re.compile("Approve|Revoke"))).to_have_count(0)
    await review.get_by_role("button", name="Adopt schedules").click()
    await dialog.get_by_role("button", name="Adopt 2 schedules").click()
    await expect(review).to_be_hidden()


async def test_a_limit_is_made_and_shows_who_waits(visitor: Visitor, fleet: Fleet) -> None:
    """Its form, a schedule that names it, and the runs that wait for another one."""
    page = visitor.page
    await visitor.go("/limits")
    await page.get_by_role("button", name="New limit").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("textbox", name="Name").fill("warehouse")
    await dialog.get_by_label("Runs at once").fill("1")
    await dialog.get_by_role("button", name="Save").click()
    card = page.get_by_role("region", name="warehouse")
    await expect(card).to_contain_text("0 of 1")
    schedule = await fleet.carillon.schedule(name="loads the warehouse", cron="0 4 * * *")
    await visitor.go(f"/schedules/{schedule['id']}?tab=edit")
    await page.get_by_text("More settings").click()
    await page.get_by_label("Limit of runs").fill("warehouse")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Saved.")).to_be_visible()
    assert "warehouse" == (await fleet.carillon.get(schedule))["limit"]
    await visitor.go("/limits")
    waiting = page.get_by_role("region", name="crm")
    await expect(waiting).to_contain_text(re.compile(r"\d+ runs wait"))
    await expect(waiting.get_by_role("row", name="sync the crm").first).to_contain_text("waits for limit:crm")
    mia = await fleet.carillon.member("mia-with-limits")
    for owner in (fleet.carillon, mia):
        await owner.call("POST", "/limits/", 201, json={"name": "spare", "max_concurrent": 2})
    await page.reload()
    spare = page.get_by_role("region", name="spare")
    await expect(spare.filter(has_text="of user").get_by_role("button")).to_have_count(0)
    await spare.get_by_role("button", name="Delete").click()
    await expect(dialog).to_contain_text("Delete the limit spare?")
    await dialog.get_by_role("button", name="Delete").click()
    await expect(spare).to_have_count(1)
    assert 2 == (await mia.call("GET", "/limits/spare/"))["max_concurrent"]


async def test_by_keyboard_alone(visitor: Visitor, fleet: Fleet) -> None:
    """Search, open, pause with a note, explain: no mouse."""
    schedule = await fleet.carillon.schedule(name="paused by keyboard", interval_seconds=3600)
    page = visitor.page
    await visitor.open("/overview")
    await page.get_by_role("heading", level=1, name="Overview").wait_for()
    await page.keyboard.press("g")
    await page.keyboard.press("s")
    await page.get_by_role("heading", level=1, name="Schedules").wait_for()
    await page.get_by_role("link", name="paused by keyboard").wait_for()
    await page.keyboard.press("j")
    await expect(page.locator(".schedule-row.current")).to_contain_text("paused by keyboard")
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", level=1, name="paused by keyboard").wait_for()
    await page.keyboard.press("p")
    await page.keyboard.type("for the night")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Resume").first).to_be_visible()
    assert "paused" == (await fleet.carillon.get(schedule))["status"]
    assert "for the night" == (await fleet.carillon.history(schedule))[-1]["note"]
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_contain_text("go to anything")
    await page.keyboard.press("Escape")
    for typed, outcome in ((">resume paused by k", "active"), (">pause paused by k", "paused")):
        await page.keyboard.press("Control+k")
        await page.keyboard.type(typed)
        await expect(page.get_by_role("option", name="paused by keyboard")).to_have_count(1)
        await page.keyboard.press("Enter")
        await expect(page.locator(".head .badge")).to_contain_text("Paused" if outcome == "paused" else "Never ran")
        assert outcome == (await fleet.carillon.get(schedule))["status"]
    for key, name in (("u", "Upcoming"), ("l", "Load"), ("m", "Limits"), ("c", "Calendars"), ("a", "Agents")):
        await page.keyboard.press("g")
        await page.keyboard.press(key)
        await page.get_by_role("heading", level=1, name=name).wait_for()
    await page.keyboard.press("Control+k")
    await page.keyboard.type("?why paused by k 02:30")
    await page.get_by_role("option", name="paused by keyboard").wait_for()
    await page.keyboard.press("Enter")
    await page.wait_for_url(re.compile(r"tab=explain&at=.*02%3A30"))
    await expect(page.locator(".sentence")).to_be_visible()


@pytest.fixture
async def worked(browser: Browser, carillon: Carillon, settings: Settings) -> AsyncIterator[Visitor]:
    """A visitor of a Carillon with a worker of its own."""
    async with working(settings), visiting(browser, str(carillon._client.base_url).rstrip("/")) as visitor:
        await visitor.log_in(carillon)
        yield visitor


async def test_at_three_in_the_morning(worked: Visitor, carillon: Carillon) -> None:
    """From the overview to the reason, the breaker is reset, the gap is backfilled, and all is well again."""
    workflow = await carillon.workflow(FAIL, name="invoice export", breaker_threshold=1, breaker_reset_seconds=3600)
    schedule = await carillon.schedule(
        workflow, name="invoices", interval_seconds=1, max_retries=1, backoff_base_seconds=1
    )

    async def has_a_gap() -> Any:
        return len(await not_fired(carillon, schedule)) > 2

    await until(has_a_gap)
    page = worked.page
    await worked.open("/overview")
    attention = page.get_by_role("region", name="Needs attention")
    await attention.get_by_role("link", name="invoices").click()
    explanation = page.get_by_role("region", name="Why did it run, or not?")
    await expect(explanation.locator(".sentence")).to_contain_text("the breaker is open until")
    nodes = [workflow["nodes"][0], {"id": "work", "type": "core.noop"}]
    await carillon.call("PATCH", f"/workflows/{workflow['id']}/", json={"nodes": nodes})
    gap = (await not_fired(carillon, schedule))[-1]
    await explanation.get_by_label("At").fill(gap)
    await explanation.get_by_role("button", name="Explain").click()
    await explanation.get_by_role("button", name="Reset the breaker").click()
    await expect(explanation.get_by_role("button", name="Reset the breaker")).to_be_hidden()
    assert "closed" == (await carillon.breaker(workflow))["state"]
    await explanation.get_by_role("button", name=re.compile(r"Backfill the gap of \d+ slots")).click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text(re.compile(r"\d+ slots would run, in about .+ m?s\."))
    await expect(dialog).to_contain_text("skipped_breaker")
    assert [] == await worked.problems_in_both_themes()
    await dialog.get_by_role("button", name="Run them").click()
    await expect(dialog).to_contain_text(re.compile(r"Done\. (\d+) of \1 done, 0 failed"))
    await dialog.get_by_role("button", name="Done").click()
    await expect(page.locator(".head .badge")).to_contain_text("Healthy")
    assert gap not in await not_fired(carillon, schedule)
    await page.get_by_role("link", name="Overview").click()
    await expect(attention).to_contain_text("Nothing needs attention.")


async def not_fired(carillon: Carillon, schedule: Json) -> list[str]:
    """Return the past slots of a schedule that the breaker stopped, oldest first, without those of a backfill."""
    items = (await carillon.call("GET", f"/schedules/{schedule['id']}/slots/", params={"ahead": 0}))["items"]
    return [item["slot"] for item in reversed(items) if item["outcome"] == "skipped_breaker"]


async def test_a_peak_is_spread(worked: Visitor, carillon: Carillon) -> None:
    """The peak is in the heat; a proposal of at most ten minutes is looked at, applied, and undone."""
    now = datetime.now(UTC)
    # Not at midnight: what fires then can only be moved to later times of its day.
    peak = (now + timedelta(hours=10 if now.hour == 12 else 12)).replace(minute=0, second=0, microsecond=0)
    workflow = await carillon.workflow(name="night")
    for number in range(12):
        await carillon.schedule(workflow, name=f"night {number}", cron=f"0 {peak.hour} * * *")
    page = worked.page
    await worked.go("/load")
    heat = page.get_by_role("region", name="Load")
    await expect(heat).to_contain_text(f"Peak: 12 at {peak:%Y-%m-%d %H:%M} UTC")
    spread = page.get_by_role("region", name="Spread")
    await expect(spread.get_by_label("At most, minutes")).to_have_value("10")
    await spread.get_by_role("button", name="Propose").click()
    await expect(spread).to_contain_text("Peak goes from 12 to 1 by 11 changes.")
    await page.get_by_label("Group by").select_option("workflow")
    group = page.get_by_role("region", name="Groups").get_by_role("row", name="night")
    await expect(group.locator(".group-heat path[d^=M]").first).to_be_attached()
    row = spread.get_by_role("row", name="night").first
    await expect(row).to_contain_text(re.compile(rf"0 {peak.hour} \* \* \*(\d+) "))
    await expect(page.get_by_text(re.compile(rf"Peak {peak:%Y-%m-%d %H:%M} UTC goes from 12 to \d\."))).to_be_visible()
    assert [] == await worked.problems_in_both_themes()
    await spread.get_by_role("button", name="Apply 11 changes").click()
    await expect(spread).to_contain_text("Done. 11 of 11 done, 0 failed")
    assert 12 == len(await minutes_of(carillon))
    await expect(heat).not_to_contain_text("Peak: 12")
    await spread.get_by_role("button", name="Undo").click()
    await expect(spread).to_contain_text("Undone. 11 of 11 done, 0 failed")
    assert {"0"} == set(await minutes_of(carillon))
    await expect(heat).to_contain_text("Peak: 12")
    tried = page.get_by_role("region", name="What if")
    await tried.get_by_role("textbox", name="Cron").fill(f"30 {peak.hour} * * *")
    await tried.get_by_role("combobox").fill("night 0")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text(re.compile(r"goes from 12 to 11\."))).to_be_visible()
    await expect(tried.get_by_role("list", name="What is tried")).to_contain_text(f"night 0 → 30 {peak.hour} * * *")
    await tried.get_by_role("button", name="Take back the change of night 0").click()
    await expect(page.get_by_text(re.compile(r"goes from 12 to 11\."))).to_be_hidden()


async def minutes_of(carillon: Carillon) -> set[str]:
    """Return the minutes of all cron expressions."""
    items = (await carillon.call("GET", "/schedules/"))["items"]
    return {item["cron"].split()[0] for item in items}


async def test_a_span_of_the_week(worked: Visitor, carillon: Carillon) -> None:
    """The grid leads to what fires in an hour; hours become a span by mouse or keys, and its slots are left out."""
    at = (datetime.now(UTC) + timedelta(days=2)).replace(hour=12, minute=0, second=0, microsecond=0)
    later = at + timedelta(hours=1, minutes=30)
    await carillon.call("POST", "/calendars/", 201, json={"name": "strike", "dates": [f"{later:%Y-%m-%d}"]})
    made = [
        await carillon.schedule(name="in the grid", cron=f"0 {at.hour} {at.day} * *"),
        await carillon.schedule(name="an hour later", cron=f"30 {later.hour} {later.day} * *"),
    ]
    await carillon.schedule(name="not on strike", cron="0 * * * *", exclude_calendars=["strike"])
    page = worked.page
    await worked.go("/upcoming")
    await page.get_by_role("button", name="Week").click()
    grid = page.get_by_role("region", name="Week")
    await expect(page.get_by_role("region", name="Calendars leave out")).to_contain_text("strike")
    await expect(grid.locator(f"td.closed:has-text('{later:%H}:00')")).to_have_attribute(
        "title", re.compile("^strike: ")
    )
    first, last = (grid.get_by_role("button", name=f"{moment:%Y-%m-%d %H}:00") for moment in (at, later))
    await first.click()
    span = page.get_by_role("region", name="In this time")
    await expect(span.get_by_role("row", name="in the grid")).to_contain_text(f"{at:%H}:00")
    await expect(span.get_by_role("row", name="an hour later")).to_have_count(0)
    await first.hover()
    await page.mouse.down()
    await last.hover()
    await page.mouse.up()
    await expect(span.get_by_role("row", name="an hour later")).to_contain_text(f"{later:%H:%M}")
    assert [] == await worked.problems_in_both_themes()
    await first.press("Enter")
    await expect(span.get_by_role("row", name="an hour later")).to_have_count(0)
    await page.keyboard.press("ArrowDown")
    await expect(last).to_be_focused()
    await page.keyboard.press("Shift+Enter")
    await expect(span.get_by_role("row", name="an hour later")).to_be_visible()
    await span.get_by_role("button", name="Pause these").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("would change.")
    await dialog.get_by_role("button", name="Cancel").click()
    await span.get_by_role("button", name=re.compile(r"Skip these \d slots")).click()
    await expect(span.get_by_role("row", name="an hour later")).to_be_hidden()
    skipped = zip(made, (at, later), strict=True)
    assert ["skipped_request"] * 2 == [
        (await carillon.explain(schedule, moment.isoformat()))["outcome"] for schedule, moment in skipped
    ]


async def test_a_dead_schedule_is_revived(worked: Visitor, carillon: Carillon) -> None:
    """Its page shows the reason; the breaker of its workflow is reset on its own page."""
    workflow = await carillon.workflow(FAIL, name="invoice export", breaker_threshold=1, breaker_reset_seconds=3600)
    schedule = await carillon.schedule(workflow, name="invoices", interval_seconds=1, max_retries=0)
    await carillon.until_status(schedule, "dead")
    page = worked.page
    await worked.open("/schedules?q=status:dead")
    await page.get_by_role("link", name="invoices").click()
    # The table of slots for screen readers has the texts too.
    await expect(page.get_by_text("Node 'work': boom").locator("visible=true").first).to_be_visible()
    await expect(page.get_by_text("the schedule is dead").locator("visible=true").first).to_be_visible()
    await page.get_by_role("link", name="Breakers").click()
    await page.get_by_role("button", name="Reset").click()
    await expect(page.locator(".badge", has_text="Closed")).to_be_visible()
    assert "closed" == (await carillon.breaker(workflow))["state"]
    await carillon.call("PATCH", f"/workflows/{workflow['id']}/", json={"nodes": [workflow["nodes"][0]], "edges": []})
    await worked.open(f"/schedules/{schedule['id']}")
    await page.get_by_role("button", name="Revive").click()
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()


async def test_maintenance_of_a_host(worked: Visitor, carillon: Carillon) -> None:
    """All schedules that call a host are found, paused until 06:00 with a note, and the pause is undone."""
    call = {"id": "call", "type": "core.http_request", "config": {"url": "http://db.example:9/sync"}}
    workflow = await carillon.workflow(call, name="sync")
    made = [await carillon.schedule(workflow, name=f"sync {number}", cron="0 4 * * *") for number in range(3)]
    await carillon.call("POST", f"/schedules/{made[0]['id']}/pause/")
    await carillon.schedule(name="calls nothing", cron="0 4 * * *")
    page = worked.page
    await worked.go("/schedules")
    await page.get_by_role("searchbox").fill("db.example")
    await page.get_by_role("button", name="Show schedules that call db.example").click()
    await expect(page.get_by_text("3 of 3")).to_be_visible()
    await page.get_by_label("Select all that match").check()
    await page.get_by_role("region", name="Actions on the selection").get_by_role("button", name="Pause").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("3 schedules match, 2 would change.")
    await expect(dialog).to_contain_text("1 left alone: they are paused already")
    await dialog.get_by_role("button", name="until 06:00").click()
    await dialog.get_by_label("Note").fill("database moves")
    await dialog.get_by_role("button", name="Do it").click()
    await expect(dialog).to_contain_text("Done. 2 of 3 done")
    paused = await carillon.call("GET", "/schedules/", params={"status": "paused"})
    assert 3 == paused["total"]
    assert "database moves" == (await carillon.history(made[1]))[-1]["note"]
    await dialog.get_by_role("button", name="Undo").click()
    await expect(dialog).to_contain_text("Undone.")
    await dialog.get_by_role("button", name="Done").click()
    assert ["paused", "active", "active"] == [(await carillon.get(schedule))["status"] for schedule in made]


async def test_a_run_laid_over_the_canvas(worked: Visitor, carillon: Carillon) -> None:
    """Run now leads to the run; on the canvas each step shows how it ended, and the clock shows the schedule."""
    before, after = ({"id": name, "type": "core.noop"} for name in ("before", "after"))
    workflow = await carillon.workflow(before, FAIL, after)
    schedule = await carillon.schedule(workflow, name="by hand", cron="0 5 * * *", max_retries=0)
    page = worked.page
    await worked.go(f"/schedules/{schedule['id']}")
    await page.get_by_role("button", name="Run now").click()
    await page.wait_for_url("**/runs/*")
    await expect(page.get_by_text("Node 'work': boom").locator("visible=true").first).to_be_visible()
    await page.get_by_role("button", name="Copy as curl").click()
    await expect(page.get_by_text("Copied.")).to_be_visible()
    await page.get_by_role("link", name="Show on the canvas").click()
    canvas = page.get_by_role("region", name="Canvas")
    for step, state in (("before", "Success"), ("work", "Failed"), ("after", "Not reached")):
        await expect(canvas.locator(".step-node", has_text=step)).to_contain_text(state)
    await canvas.locator(".step-node", has_text="work").click()
    await expect(page.get_by_role("region", name="Result of work")).to_contain_text("boom")
    await page.get_by_label("Lay a run over it").select_option("none")
    node = canvas.locator(".step-node", has_text="start")
    await expect(node).to_contain_text("every day at 05:00 UTC")
    await expect(node.get_by_role("img", name="Slots of by hand")).to_be_visible()
    await node.get_by_role("button", name="Pause").click()
    await expect(node.get_by_role("button", name="Resume")).to_be_visible()
    assert "paused" == (await carillon.get(schedule))["status"]
    await node.get_by_role("button", name="Resume").click()
    await expect(node.get_by_role("button", name="Pause")).to_be_visible()
    await node.locator(".step-title").click()
    clock = page.get_by_role("region", name="Schedules")
    await expect(clock).to_contain_text("every day at 05:00 UTC")
    await clock.get_by_role("button", name="Pause").click()
    await expect(clock.get_by_role("button", name="Resume")).to_be_visible()
    await page.get_by_role("link", name="History").click()
    await expect(page.get_by_role("row", name="workflow created")).to_be_visible()


async def test_the_switch_stops_all_schedules(worked: Visitor, carillon: Carillon) -> None:
    """The switch of the settings page is that of the API."""
    await worked.open("/settings")
    await worked.page.get_by_role("button", name="Switch off").click()
    await expect(worked.page.get_by_text("Schedules are off.")).to_be_visible()
    assert (await carillon.call("GET", "/settings/"))["schedules_enabled"] is False
