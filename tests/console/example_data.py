"""Workflows and schedules that show every state of the console: healthy, failing, paused, dead, blocked, odd names."""

from tests.support.carillon import FAIL, Carillon, Json

# Harmless and legible, whatever people call their schedules.
ODD_NAMES = (
    "<script>alert(1)</script>",
    "تقرير الليل 🌙 nightly",
    "n" * 255,
)
SECONDS = 1


async def example_fleet(carillon: Carillon) -> dict[str, Json]:
    """Create the examples and return the schedules by their names."""
    noop = await carillon.workflow(name="nightly report")
    failing = await carillon.workflow(FAIL, name="invoice export", breaker_threshold=3, breaker_reset_seconds=3600)
    slow = await carillon.workflow({"id": "wait", "type": "core.delay", "config": {"seconds": 5}}, name="slow import")
    every = {"interval_seconds": SECONDS}
    made = [
        await carillon.schedule(noop, name="heartbeat", **every),
        await carillon.schedule(failing, name="invoices", max_retries=0, if_running="allow", **every),
        await carillon.schedule(slow, name="import", if_running="skip", **every),
        await carillon.schedule(noop, name="paused for maintenance", cron="*/5 * * * *"),
        await carillon.schedule(noop, name="berlin at half past two", cron="30 2 * * *", timezone="Europe/Berlin"),
        await carillon.schedule(noop, name="month end", every="monthly"),
        *[await carillon.schedule(noop, name=name, cron="0 3 * * 1-5") for name in ODD_NAMES],
    ]
    schedules = {schedule["name"]: schedule for schedule in made}
    paused = schedules["paused for maintenance"]["id"]
    await carillon.call("POST", f"/schedules/{paused}/pause/", json={"note": "until the database is moved"})
    return schedules
