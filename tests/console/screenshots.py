"""``make screenshots``: a picture of every page of the console with example schedules, light, dark and narrow."""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Literal

from playwright.async_api import Browser

from tests.console.example_data import example_fleet
from tests.console.visitor import DESKTOP, PHONE, open_browser, visiting
from tests.support.carillon import Carillon, Json
from tests.system.running import RunningCarillon

# The examples fire once a second: enough for a strip to show something.
FILL_SECONDS = 40
# Charts and strips are drawn after their data has come.
DRAW_MS = 1500


async def skipped_slot(carillon: Carillon, schedule: Json) -> str:
    """Return the newest slot of a schedule that did not fire."""
    return next(str(item["slot"]) for item in reversed(await carillon.ledger(schedule)) if item["outcome"] != "fired")


def pages(schedules: dict[str, Json], skipped: str, run: str) -> dict[str, str]:
    """Return the addresses of the pages by the names of their pictures."""
    slow, berlin = schedules["import"]["id"], schedules["berlin at half past two"]["id"]
    names = (
        "overview",
        "schedules",
        "upcoming",
        "load",
        "workflows",
        "runs",
        "breakers",
        "limits",
        "calendars",
        "audit",
        "agents",
        "settings",
        "sessions",
    )
    return {
        **{name: f"/{name}" for name in names},
        "week": "/upcoming?view=week",
        "schedule": f"/schedules/{slow}?tab=explain&at={skipped}",
        "editor": f"/schedules/{berlin}?tab=edit",
        "workflow": "/workflows/2",
        "run": f"/runs/{run}",
        "views": "/schedules?q=status:active&sort=name",
    }


async def take(folder: Path) -> None:
    """Start a Carillon, let the examples fire, and write the pictures into a folder."""
    with tempfile.TemporaryDirectory(prefix="carillon-") as data:
        async with RunningCarillon(Path(data)) as running, open_browser() as browser:
            schedules = await example_fleet(running.carillon)
            await asyncio.sleep(FILL_SECONDS)
            failed = (await running.carillon.runs(schedules["invoices"]))[-1]["id"]
            addresses = pages(schedules, await skipped_slot(running.carillon, schedules["import"]), failed)
            await picture(browser, running, addresses, folder, "light")
            await picture(browser, running, addresses, folder, "dark")
            await picture(browser, running, addresses, folder, "light", phone=True)


async def picture(
    browser: Browser,
    running: RunningCarillon,
    addresses: dict[str, str],
    folder: Path,
    scheme: Literal["light", "dark"],
    *,
    phone: bool = False,
) -> None:
    """Write one picture of each page."""
    size, suffix = (PHONE, "phone") if phone else (DESKTOP, scheme)
    carillon: Carillon = running.carillon
    async with visiting(browser, running.url, color_scheme=scheme, viewport=size) as visitor:
        await visitor.log_in(carillon)
        for name, address in addresses.items():
            await visitor.open(address)
            await visitor.page.get_by_role("heading", level=1).wait_for()
            await visitor.page.wait_for_timeout(DRAW_MS)
            await visitor.page.screenshot(path=folder / f"{name}-{suffix}.png")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(take(target))
