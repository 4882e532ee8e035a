"""Ids and names of others in every parameter: a member's filters, searches, operations and figures never reach them."""

from typing import Any
from uuid import uuid4

import pytest

from tests.support.carillon import Carillon, Json

SECRET_NAME = "quarterly-secret"
NODES = [
    {"id": "start", "type": "trigger_schedule"},
    {"id": "call", "type": "core.http_request", "config": {"url": "https://hidden.example/hook"}},
]


class Others:
    """What an admin and a team have that a member must not see."""

    def __init__(self, made: Json) -> None:
        self.made = made

    @classmethod
    async def create(cls, admin: Carillon) -> "Others":
        """Create a workflow, a schedule, a run, an operation, a team and a namespace."""
        team = await admin.call("POST", "/teams/", 201, json={"name": SECRET_NAME})
        flow = {"name": SECRET_NAME, "nodes": NODES, "key": "hidden-key"}
        workflow = await admin.call("POST", "/workflows/", 201, json=flow)
        schedule = {"name": SECRET_NAME, "workflow_id": workflow["id"], "every": "1h", "key": "hidden-key"}
        schedule["labels"] = {"hidden": "label"}
        made = await admin.call("POST", "/schedules/", 201, json=schedule)
        run = await admin.call("POST", f"/schedules/{made['id']}/run/", 202)
        operation = await admin.call("POST", "/schedules/bulk/", 202, json={"action": "pause", "ids": [made["id"]]})
        document: Json = {"namespace": "hidden", "workflows": [{"name": SECRET_NAME, "nodes": NODES}]}
        document["schedules"] = [{"name": SECRET_NAME, "workflow": SECRET_NAME, "every": "1h"}]
        await admin.call("POST", "/apply/", json={"documents": [document]})
        ids = {"team": team["id"], "workflow": workflow["id"], "schedule": made["id"], "owner": made["user_profile_id"]}
        return cls({**ids, "run": run["id"], "operation": operation["id"]})

    def queries(self) -> list[tuple[str, Json]]:
        """Return every list with every parameter that can name something of others."""
        made = self.made
        schedules: list[Json] = [
            {"q": SECRET_NAME},
            {"q": made["schedule"]},
            {"ids": made["schedule"]},
            {"workflow_id": made["workflow"]},
            {"owner_id": made["owner"]},
            {"namespace": "hidden"},
            {"label": "hidden=label"},
            *({"status": "active", "sort": sort} for sort in ("name", "next_run_at", "-last_attempt_at")),
            {"health": "never_ran"},
        ]
        runs = [{"scheduled_job_id": made["schedule"]}, {"workflow_id": made["workflow"]}, {"status": "pending"}, {}]
        told = [{"object_id": made["schedule"]}, {"actor": "admin"}, {"object_type": "operation"}, {"via": "file"}]
        words = (SECRET_NAME, "hidden-key", "hidden.example", made["schedule"], str(made["workflow"]))
        return [
            *(("/schedules/", query) for query in schedules),
            *(("/executions/", query) for query in runs),
            *(("/audit/", query) for query in told),
            *(("/search/", {"q": word}) for word in words),
            *((f"/stats/{kind}/", {"workflow_id": made["workflow"]}) for kind in ("outcomes", "lateness")),
            ("/slots/", {"schedule_ids": made["schedule"]}),
            *((path, {}) for path in ("/operations/", "/overview/", "/workflows/", "/breakers/", "/export/")),
            ("/export/", {"namespace": "hidden"}),
        ]

    def is_told_in(self, text: str) -> bool:
        """Return whether an answer tells anything of them."""
        told = (SECRET_NAME, "hidden", self.made["schedule"], self.made["run"], self.made["operation"])
        return any(word in text for word in told)


@pytest.fixture
async def others(carillon: Carillon) -> Others:
    """What the admin has."""
    return await Others.create(carillon)


async def test_no_parameter_reaches_what_others_have(carillon: Carillon, others: Others) -> None:
    """Answers tell nothing of it, and are empty; the admin finds it by the same parameters."""
    member = await carillon.member()
    hidden = []
    for path, query in others.queries():
        headers = {"Accept": "application/json"}
        response = await member.request("GET", path, params=query, headers=headers)
        assert response.status_code in {200, 404}, (path, query, response.text)
        assert not others.is_told_in(response.text), (path, query, response.text)
        seen = await carillon.request("GET", path, params=query, headers=headers)
        hidden += [] if others.is_told_in(seen.text) else [path]
    # Of these there is nothing to tell: nothing has fired, failed or opened a breaker.
    assert set(hidden) <= {"/stats/outcomes/", "/stats/lateness/", "/overview/", "/breakers/"}


async def test_ids_of_others_are_unknown_to_calls_about_one_object(carillon: Carillon, others: Others) -> None:
    """The same answer as for what does not exist."""
    member, made = await carillon.member(), others.made
    paths = [
        *(f"/schedules/{{}}/{part}" for part in ("", "slots/", "runs/", "ledger/", "history/", "explain/")),
        *("/operations/{}/", "/executions/{}/"),
    ]
    for path in paths:
        own = made["operation"] if "operations" in path else made["run"] if "executions" in path else made["schedule"]
        known, unknown = [await member.request("GET", path.format(one)) for one in (own, uuid4())]
        assert (404, known.json()["code"]) == (unknown.status_code, unknown.json()["code"])
        assert 404 == known.status_code
    for verb in ("pause", "resume", "cancel", "undo"):
        await member.call("POST", f"/operations/{made['operation']}/{verb}/", 404)


async def test_operations_do_not_count_what_others_have(carillon: Carillon, others: Others) -> None:
    """By ids and by every filter; a workflow of others cannot be moved to."""
    member, made = await carillon.member(), others.made
    selections: list[Json] = [
        {"ids": [made["schedule"]]},
        *(
            {"filter": one}
            for one in (
                {"q": SECRET_NAME},
                {"ids": [made["schedule"]]},
                {"workflow_id": made["workflow"]},
                {"owner_id": str(made["owner"])},
                {"label": ["hidden=label"]},
                {"namespace": "hidden"},
                {},
            )
        ),
    ]
    for selection in selections:
        body: dict[str, Any] = {"action": "pause", "dry_run": True, **selection}
        tried = await member.call("POST", "/schedules/bulk/", json=body)
        assert (0, {}) == (tried["count"], tried["by_status"])
    moving = {"action": "move", "arguments": {"workflow_id": made["workflow"]}, "filter": {}}
    await member.call("POST", "/schedules/bulk/", 404, json=moving)
    team = {"name": "x", "workflow_id": made["workflow"], "every": "1h", "team_id": made["team"]}
    await member.call("POST", "/schedules/", 404, json=team)
