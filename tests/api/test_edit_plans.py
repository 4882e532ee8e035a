"""Plans of edits over the API.

Covers app.services.edit_plans, app.persistence.edit_plans.
"""

from datetime import UTC, datetime
from uuid import uuid4

from sqlalchemy import text

from app.persistence.database import Database
from tests.support.carillon import Carillon, Json, moment


async def test_a_plan_is_what_the_edit_does(carillon: Carillon, database: Database) -> None:
    """Nothing is changed by it; the edit that names it does what it said, unless the schedule was changed meanwhile."""
    # Both times are still to come today, or both were before.
    hour = 3 if 6 <= datetime.now(UTC).hour <= 22 else 15
    schedule = await carillon.schedule(cron=f"0 {hour} * * *", name="s")
    path = f"/schedules/{schedule['id']}/"
    body: Json = {"cron": f"0 {hour + 1} * * *", "jitter_seconds": 60}
    plan = await carillon.call("POST", f"{path}plan/", json={**body, "days": 3})
    assert schedule == await carillon.get(schedule)
    assert {"from": schedule["cron"], "to": body["cron"]} == plan["changes"]["cron"]
    assert (0, 3, False, "active") == (
        plan["slots"]["kept"],
        len(plan["slots"]["moved"]),
        plan["fires_now"],
        plan["status"],
    )
    first = plan["slots"]["moved"][0]
    assert (first["from"]["at"], first["to"]["at"]) == (plan["next_run_at"]["from"], plan["next_run_at"]["to"])
    assert hour + 1 == moment(first["to"]["slot"]).hour
    other = await carillon.call("POST", f"{path}plan/", json=body)
    for differing in ({**body, "jitter_seconds": 61}, {**body, "name": "t"}, {"cron": body["cron"]}):
        problem = await carillon.call("PATCH", path, 409, json={**differing, "plan_id": plan["plan_id"]})
        assert "plan_differs" == problem["code"]
    edited = await carillon.call("PATCH", path, json={**body, "name": "s", "plan_id": plan["plan_id"]})
    assert plan["next_run_at"]["to"] == edited["next_run_at"]
    for outdated in (other["plan_id"], str(uuid4())):
        problem = await carillon.call("PATCH", path, 409, json={"name": "x", "plan_id": outdated})
        assert "plan_outdated" == problem["code"]
    fresh = await carillon.call("POST", f"{path}plan/", json={"name": "x"})
    assert ({"name": {"from": "s", "to": "x"}}, [], []) == (
        fresh["changes"],
        fresh["slots"]["moved"],
        fresh["slots"]["removed"],
    )
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE edit_plans SET created_at = created_at - interval '10 minutes'"))
    assert "plan_outdated" == (await carillon.call("PATCH", path, 409, json={"plan_id": fresh["plan_id"]}))["code"]
    await carillon.call("POST", f"{path}plan/", json={})
    async with database.transaction() as connection:
        assert 1 == (await connection.execute(text("SELECT count(*) FROM edit_plans"))).scalar_one()


async def test_a_plan_of_what_is_refused(standing: Carillon) -> None:
    """It is refused as the edit would be, and a stranger does not learn of the schedule."""
    schedule = await standing.schedule(cron="0 9 * * *")
    path = f"/schedules/{schedule['id']}/plan/"
    for body, field in (({"cron": "0 9 31 2 *"}, "cron"), ({"unknown": 1}, "unknown"), ({"days": 0}, "days")):
        problem = await standing.call("POST", path, 422, json=body)
        assert field == problem["errors"][0]["field"]
    await standing.call("POST", path, 404, json={"workflow_id": 987654})
    stranger = await standing.member("plan-stranger")
    await stranger.call("POST", path, 404, json={})
    tag = (await standing.request("GET", f"/schedules/{schedule['id']}/")).headers["etag"]
    await standing.call("POST", path, 200, json={}, headers={"If-Match": tag})
    await standing.call("POST", path, 412, json={}, headers={"If-Match": '"old"'})
