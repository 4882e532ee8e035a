"""Forecasts over the API: the sum of what is upcoming.

Covers app.api.forecasts, app.services.forecasts, app.services.spread, app.services.views.forecasts,
app.persistence.forecasts.
"""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from app.persistence.database import Database
from tests.support.carillon import Carillon, Json, moment

HOUR = timedelta(hours=1)
ZONES = ["UTC", "Europe/Berlin", "Asia/Kathmandu", "America/New_York"]


def specs(dice: random.Random, start: datetime) -> list[Json]:
    """Return random specs of all kinds: many with the same intervals and other phases."""
    begun = [{"start_at": (start - timedelta(seconds=dice.uniform(0, 90_000))).isoformat()} for _ in range(14)]
    even = [{"every": dice.choice(["700s", "30m", "90m", "3333.5s"]), **phase} for phase in begun]
    windowed = {"only_between": "06:00-22:30", "timezone": dice.choice(ZONES), "not_on": ["sunday"]}
    return [
        *even,
        *({"interval_seconds": 1500, **phase, **windowed} for phase in begun[:4]),
        *({"cron": f"{dice.randrange(60)} */{dice.randrange(1, 5)} * * *", "timezone": zone} for zone in ZONES),
        *({"cron": "15 * * * *", "jitter_seconds": dice.choice([30, 2000])} for _ in range(3)),
        {"interval_seconds": 900, "total_repeats": 7},
        {"interval_seconds": 900, "end_at": (start + 9 * HOUR).isoformat()},
        *({"every": "25m", **phase, "exclude_calendars": ["lunch"]} for phase in begun[4:7]),
        {"every": "monthly"},
        {"rrule": "FREQ=DAILY;BYHOUR=3,9,17;BYMINUTE=20"},
        {"at": (start + dice.uniform(1, 20) * HOUR).isoformat()},
        {"after": f"{dice.randrange(100, 60_000)}s"},
    ]


def span(since: datetime, until: datetime) -> Json:
    """Return the bounds of a request."""
    return {"from": since.isoformat(), "to": until.isoformat()}


async def upcoming(client: Carillon, since: datetime, until: datetime) -> list[Json]:
    """Return all coming fires of a span, read in short ones."""
    items: list[Json] = []
    while since < until:
        page = await client.call(
            "GET", "/upcoming/", params={**span(since, min(until, since + 6 * HOUR)), "limit": 500}
        )
        assert page["is_complete"]
        items += page["items"]
        since += 6 * HOUR
    return items


async def test_a_forecast_is_the_sum_of_what_is_upcoming(standing: Carillon) -> None:
    """For random fleets with skips, calendars and pauses: in total, by schedule, by workflow and with a filter."""
    dice = random.Random(7)
    mia = await standing.member("forecast-mia")
    start = datetime.now(UTC)
    flows = [await mia.workflow(name=f"w{number}") for number in range(2)]
    entries = [
        f"{start.date() + timedelta(days=day)}T11:17/{start.date() + timedelta(days=day)}T15:00" for day in (0, 1)
    ]
    await mia.call("POST", "/calendars/", 201, json={"name": "lunch", "timezone": "UTC", "dates": entries})
    bodies = [
        {"name": f"s{number}", "workflow_id": flows[number % 2]["id"], "labels": {"part": str(number % 3)}, **spec}
        for number, spec in enumerate(specs(dice, start))
    ]
    made = await mia.call("POST", "/schedules/batch/", 201, json={"schedules": bodies})
    await mia.call("POST", f"/schedules/{made['items'][0]['id']}/pause/")
    back = (start + 3 * HOUR).isoformat()
    await mia.call("POST", f"/schedules/{made['items'][1]['id']}/pause/", json={"until": back})
    for item in made["items"][2:34:3]:
        await mia.call("POST", f"/schedules/{item['id']}/skip/", json={"next": dice.randrange(1, 5)})
    for offset, hours, length in ((0.5, 12, 300), (3.0007, 20, 3600), (30, 6, 77)):
        since = start + offset * HOUR
        until = since + hours * HOUR
        items = await upcoming(mia, since, until)
        expected = Counter((moment(item["at"]) - since) // timedelta(seconds=length) for item in items)
        body = {**span(since, until), "bucket_seconds": length}
        told = await mia.call("POST", "/forecast/", json={**body, "by": "schedule"})
        assert not told["is_estimate"]
        fires = [bucket["fires"] for bucket in told["buckets"]]
        assert expected == Counter({index: number for index, number in enumerate(fires) if number})
        assert (max(fires), sum(fires)) == (told["peak"]["fires"], len(items))
        by_id = Counter(item["schedule_id"] for item in items)
        assert by_id == {group["key"]: group["fires"] for group in told["groups"]}
        assert all(sum(group["buckets"]) == group["fires"] for group in told["groups"])
        told = await mia.call("POST", "/forecast/", json={**body, "by": "workflow"})
        assert {(flow["id"], flow["name"]) for flow in flows} == {(one["key"], one["name"]) for one in told["groups"]}
        assert Counter(item["workflow_id"] for item in items) == {one["key"]: one["fires"] for one in told["groups"]}
        told = await mia.call("POST", "/forecast/", json={**body, "filter": {"label": ["part=1"]}})
        chosen = {one["id"] for one in made["items"] if one["labels"]["part"] == "1"}
        assert sum(by_id[job_id] for job_id in chosen) == sum(bucket["fires"] for bucket in told["buckets"])


async def test_changes_and_drafts_are_laid_over_a_forecast(standing: Carillon) -> None:
    """Nothing of them is stored; what an edit would be refused for is refused."""
    mia = await standing.member("forecast-changes")
    nightly = await mia.schedule(cron="0 0 * * *", name="nightly")
    day = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    body = {**span(day, day + 24 * HOUR), "bucket_seconds": 3600}

    async def fires(**more: Any) -> dict[int, int]:
        told = await mia.call("POST", "/forecast/", json={**body, **more})
        return {index: bucket["fires"] for index, bucket in enumerate(told["buckets"]) if bucket["fires"]}

    moved = {"id": nightly["id"], "set": {"cron": "0 5 * * *"}}
    draft = {"draft": {"name": "d", "workflow_id": nightly["workflow_id"], "cron": "0 5,6 * * *"}}
    assert {0: 1} == await fires()
    assert {5: 1} == await fires(changes=[moved])
    assert {5: 2, 6: 1} == await fires(changes=[moved, draft])
    assert nightly == await mia.get(nightly)
    assert {0: 1} == await fires(by="host")
    broken = {"id": nightly["id"], "set": {"cron": "0 0 31 2 *"}}
    problem = await mia.call("POST", "/forecast/", 422, json={"changes": [draft, broken]})
    assert "changes[1].set.cron" == problem["errors"][0]["field"]
    problem = await mia.call("POST", "/forecast/", 422, json={**body, "bucket_seconds": 1})
    assert "bucket_seconds" == problem["errors"][0]["field"]
    stranger = await standing.member("forecast-stranger")
    await stranger.call("POST", "/forecast/", 404, json={"changes": [moved]})
    assert 0 == (await stranger.call("POST", "/forecast/", json=body))["peak"]["fires"]


async def test_past_durations_are_busy_seconds(carillon: Carillon, database: Database) -> None:
    """By the average of the newest runs of the workflow, and by owner and host."""
    action = {"id": "call", "type": "core.http_request", "config": {"url": "https://example.com/x"}}
    schedule = await carillon.schedule(await carillon.workflow(action), interval_seconds=600)
    await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202)
    took = "started_at = scheduled_for, finished_at = scheduled_for + interval '30 seconds'"
    async with database.transaction() as connection:
        await connection.execute(text(f"UPDATE workflow_executions SET status = 'success', {took}"))
    told = await carillon.call("POST", "/forecast/", json={"by": "host", "bucket_seconds": 3600})
    assert {(bucket["fires"] * 30) for bucket in told["buckets"]} == {
        bucket["busy_seconds"] for bucket in told["buckets"]
    }
    (group,) = told["groups"]
    assert ("example.com", group["fires"] * 30) == (group["key"], group["busy_seconds"])
    (owner,) = (await carillon.call("POST", "/forecast/", json={"by": "owner"}))["groups"]
    assert (schedule["user_profile_id"], "admin") == (owner["key"], owner["name"])


@pytest.mark.parametrize("bounds", [{"max_shift_seconds": 300}, {"max_shift_seconds": 7200, "by_jitter": True}])
async def test_a_spread_lowers_the_peak_as_it_says(standing: Carillon, bounds: Json) -> None:
    """Carried out one by one, by minutes or by jitter, the forecast has the peak that was promised."""
    mia = await standing.member(f"spread-mia-{len(bounds)}")
    workflow = await mia.workflow()
    # Far from now: what moves stays within the next 24 hours.
    hour = 3 if 8 <= datetime.now(UTC).hour <= 22 else 15
    body = {"workflow_id": workflow["id"], "cron": f"0 {hour} * * *"}
    schedules = [{"name": f"s{number}", "labels": {"move": str(number < 12)}, **body} for number in range(15)]
    await mia.call("POST", "/schedules/batch/", 201, json={"schedules": schedules})
    told = await mia.call("POST", "/forecast/spread/", json={**bounds, "filter": {"label": ["move=True"]}})
    assert (15, True) == (told["before"]["fires"], 3 <= told["after"]["fires"] <= 5)
    laid_over = await mia.call("POST", "/forecast/", json={"bucket_seconds": 60, "changes": told["changes"]})
    assert told["after"]["fires"] == laid_over["peak"]["fires"]
    for change in told["changes"]:
        changed = await mia.call("PATCH", f"/schedules/{change['id']}/", json=change["set"])
        slot = moment(changed["next_slot"])
        assert ("True", True) == (changed["labels"]["move"], abs((slot.hour - hour) * 60 + slot.minute) <= 5)
    since = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
    forecast = {**span(since, since + 24 * HOUR), "bucket_seconds": 60}
    assert told["after"]["fires"] == (await mia.call("POST", "/forecast/", json=forecast))["peak"]["fires"]


async def test_a_spread_is_about_what_one_sees(standing: Carillon) -> None:
    """Whoever sees nothing gets no proposals."""
    stranger = await standing.member("spread-stranger")
    told = await stranger.call("POST", "/forecast/spread/", json={"max_shift_seconds": 600})
    assert (0, 0, []) == (told["before"]["fires"], told["after"]["fires"], told["changes"])
