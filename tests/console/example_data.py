"""Examples of every state of the console: healthy, failing, paused, dead, blocked, limited, reviewed, odd names."""

from datetime import UTC, datetime, timedelta

from tests.support.carillon import FAIL, Carillon, Json

# Harmless and legible, whatever people call their schedules.
ODD_NAMES = (
    "<script>alert(1)</script>",
    "تقرير الليل 🌙 nightly",
    "n" * 255,
)
SECONDS = 1
# Of five seconds each, one at a time.
WAITING_RUNS = 24


async def example_fleet(carillon: Carillon) -> dict[str, Json]:
    """Create the examples and return the schedules by their names."""
    noop = await carillon.workflow(name="nightly report")
    failing = await carillon.workflow(FAIL, name="invoice export", breaker_threshold=3, breaker_reset_seconds=3600)
    slow = await carillon.workflow({"id": "wait", "type": "core.delay", "config": {"seconds": 5}}, name="slow import")
    every = {"interval_seconds": SECONDS}
    closed = (datetime.now(UTC) + timedelta(days=2)).date().isoformat()
    await carillon.call("POST", "/calendars/", 201, json={"name": "stocktaking", "dates": [closed]})
    made = [
        await carillon.schedule(noop, name="heartbeat", **every),
        await carillon.schedule(failing, name="invoices", max_retries=2, backoff_base_seconds=1, **every),
        await carillon.schedule(slow, name="import", if_running="skip", **every),
        await carillon.schedule(noop, name="paused for maintenance", cron="*/5 * * * *"),
        await carillon.schedule(noop, name="berlin at half past two", cron="30 2 * * *", timezone="Europe/Berlin"),
        await carillon.schedule(noop, name="month end", every="monthly"),
        await carillon.schedule(noop, name="deliveries", cron="0 7 * * *", exclude_calendars=["stocktaking"]),
        *[await carillon.schedule(noop, name=name, cron="0 3 * * 1-5") for name in ODD_NAMES],
    ]
    schedules = {schedule["name"]: schedule for schedule in made}
    paused = schedules["paused for maintenance"]["id"]
    await carillon.call("POST", f"/schedules/{paused}/pause/", json={"note": "until the database is moved"})
    await example_limit(carillon, slow)
    await example_lease(carillon, noop)
    return schedules


async def example_limit(carillon: Carillon, workflow: Json) -> None:
    """Create a limit for which runs wait."""
    await carillon.call("POST", "/limits/", 201, json={"name": "crm", "max_concurrent": 1, "rate": "100/s"})
    limited = await carillon.schedule(workflow, name="sync the crm", cron="0 1 * * *", limit="crm", if_running="allow")
    for _ in range(WAITING_RUNS):
        await carillon.call("POST", f"/schedules/{limited['id']}/run/", 202)


async def example_lease(carillon: Carillon, workflow: Json) -> None:
    """Grant a lease to an agent whose schedule awaits review."""
    ends_at = (datetime.now(UTC) + timedelta(days=30)).isoformat()
    terms = {"agent": "stock keeper", "purpose": "count the stock after each delivery", "review": "before"}
    lease = await carillon.call("POST", "/leases/", 201, json={**terms, "expires_at": ends_at, "max_runs": 200})
    agent = carillon.with_token(lease["token"])
    await agent.schedule(workflow, name="count the stock", cron="0 6 * * 1-5", total_repeats=20)
