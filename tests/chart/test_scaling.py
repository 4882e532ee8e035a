"""How many pods there are, and what makes them more."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text

from app.persistence import gauges
from app.persistence.database import Database
from app.persistence.engines import create_engine
from tests.chart.kubernetes import problems
from tests.chart.manifests import kinds, only
from tests.chart.rendering import Renderer, Values
from tests.chart.values import DEFAULTS, EVERYTHING, EXISTING, HIGHLY_AVAILABLE, KEDA, LEAST
from tests.persistence.past import give_past
from tests.support.carillon import Carillon, make_due

_MORE_SCHEDULES = (
    "INSERT INTO scheduled_jobs SELECT (jsonb_populate_record(j, jsonb_build_object("
    "'id', gen_random_uuid(), 'name', 'schedule ' || n))).* "
    "FROM scheduled_jobs AS j CROSS JOIN generate_series(1, 5000) AS n"
)


def test_replicas_are_left_to_an_autoscaler(render: Renderer) -> None:
    """Where one is at work, an upgrade does not set the number back."""
    for component in ("api", "worker"):
        assert 2 == only(render(DEFAULTS), "Deployment", f"-{component}")["spec"]["replicas"]
        assert "replicas" not in only(render(HIGHLY_AVAILABLE), "Deployment", f"-{component}")["spec"]
        by_hand = render({component: {"replicas": None}})
        assert "replicas" not in only(by_hand, "Deployment", f"-{component}")["spec"]


def test_the_api_scales_on_cpu(render: Renderer) -> None:
    """By the part of the requested CPU, within its bounds."""
    spec = only(render(HIGHLY_AVAILABLE), "HorizontalPodAutoscaler", "-api")["spec"]
    assert "carillon-api" == spec["scaleTargetRef"]["name"]
    assert (3, 30) == (spec["minReplicas"], spec["maxReplicas"])
    target = {"type": "Utilization", "averageUtilization": 70}
    assert [{"type": "Resource", "resource": {"name": "cpu", "target": target}}] == spec["metrics"]


def test_workers_scale_on_due_ticks_by_an_adapter(render: Renderer) -> None:
    """The external metric is the one that the API exports, never a length of the queue."""
    spec = only(render(HIGHLY_AVAILABLE), "HorizontalPodAutoscaler", "-worker")["spec"]
    metric = {"name": "carillon_due_ticks", "selector": {"matchLabels": {"namespace": "bells"}}}
    target = {"type": "AverageValue", "averageValue": "500"}
    assert [{"type": "External", "external": {"metric": metric, "target": target}}] == spec["metrics"]
    assert "carillon-worker" == spec["scaleTargetRef"]["name"]


def test_workers_scale_on_due_ticks_by_keda(render: Renderer) -> None:
    """KEDA asks Postgres, with the URL from the Secret where it lies."""
    manifests = render(KEDA)
    spec = only(manifests, "ScaledObject")["spec"]
    (trigger,) = spec["triggers"]
    authentication = only(manifests, "TriggerAuthentication")
    reference = {"parameter": "connection", "name": "postgres-app", "key": EXISTING["secretKeys"]["databaseUrl"]}
    assert "carillon-worker" == spec["scaleTargetRef"]["name"]
    assert (1, 10) == (spec["minReplicaCount"], spec["maxReplicaCount"])
    assert ("postgresql", "AverageValue", "500") == (
        trigger["type"],
        trigger["metricType"],
        trigger["metadata"]["targetQueryValue"],
    )
    assert {"name": authentication["metadata"]["name"]} == trigger["authenticationRef"]
    assert [reference] == authentication["spec"]["secretTargetRef"]


@pytest.mark.parametrize(("values", "scaler"), [(KEDA, "ScaledObject"), (EVERYTHING, "ScaledObject")])
def test_one_scaler_for_the_workers(render: Renderer, values: Values, scaler: str) -> None:
    """Two would fight over the number."""
    names = [item["metadata"]["name"] for item in render(values) if item["kind"] == "HorizontalPodAutoscaler"]
    assert scaler in kinds(render(values))
    assert [] == [name for name in names if name.endswith("-worker")]


async def test_the_query_counts_what_is_due(render: Renderer, carillon: Carillon, database: Database) -> None:
    """Due ticks and due executions count; what waits for its time, or is paused, does not."""
    query = only(render(KEDA), "ScaledObject")["spec"]["triggers"][0]["metadata"]["query"]

    async def counted() -> Any:
        async with database.engine.connect() as connection:
            return (await connection.execute(text(query))).scalar_one()

    due, paused = await carillon.schedule(interval_seconds=3600), await carillon.schedule(interval_seconds=3600)
    assert 0 == await counted()
    await make_due(database, due)
    await make_due(database, paused)
    assert 2 == await counted()
    await carillon.call("POST", f"/schedules/{paused['id']}/pause/")
    assert 1 == await counted()
    await carillon.call("POST", f"/schedules/{paused['id']}/run/", 202)
    assert 2 == await counted()


async def test_the_query_reads_no_history(render: Renderer, carillon: Carillon, database: Database) -> None:
    """With many schedules and many ended runs it looks at what is due or under way, by indexes, and at nothing else."""
    query = only(render(KEDA), "ScaledObject")["spec"]["triggers"][0]["metadata"]["query"]
    schedule = await carillon.schedule(interval_seconds=3600)
    await give_past(database, schedule, 5000)
    async with database.transaction() as connection:
        await connection.execute(text(_MORE_SCHEDULES))
    # A connection as KEDA has it, without the planner settings of Carillon's own.
    engine = create_engine(database.url, isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        await connection.execute(text("ANALYZE"))
        plan = (await connection.execute(text(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}"))).scalar_one()[0]
    await engine.dispose()
    nodes = list(plan_nodes(plan["Plan"]))
    assert {"due_ticks", "active_executions"} == {node["Relation Name"] for node in nodes if "Relation Name" in node}
    assert [] == [node for node in nodes if node["Node Type"] == "Seq Scan" and node["Relation Name"] == "due_ticks"]
    assert plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"] < 100


def plan_nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every node of a plan."""
    yield plan
    for inner in plan.get("Plans", []):
        yield from plan_nodes(inner)


async def test_both_autoscalers_scale_on_the_same_number(
    render: Renderer, carillon: Carillon, database: Database
) -> None:
    """The query of KEDA and the metric of the adapter count ticks and pending runs alike."""
    query = only(render(KEDA), "ScaledObject")["spec"]["triggers"][0]["metadata"]["query"]
    for _ in range(3):
        await make_due(database, await carillon.schedule(interval_seconds=3600))
    waiting = await carillon.schedule(interval_seconds=3600)
    await carillon.call("POST", f"/schedules/{waiting['id']}/run/", 202)
    async with database.reading() as connection:
        counted = (await connection.execute(text(query))).scalar_one()
        assert 4 == counted == (await gauges.read(connection)).due


def test_keda_falls_back_to_a_number_of_pods(render: Renderer) -> None:
    """While Postgres does not answer KEDA there are as many pods as the values say, or the fewest."""
    assert {"failureThreshold": 4, "replicas": 1} == only(render(KEDA), "ScaledObject")["spec"]["fallback"]
    given = {"failureThreshold": 2, "replicas": 5, "behavior": "currentReplicasIfHigher"}
    values = {"worker": {"autoscaling": {"enabled": True, "fallback": given}}}
    scaled = only(render(values), "ScaledObject")
    assert given == scaled["spec"]["fallback"]
    assert [] == problems(scaled)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (DEFAULTS, {"carillon-api": 1, "carillon-worker": 1}),
        (HIGHLY_AVAILABLE, {"carillon-api": "34%", "carillon-worker": 1}),
        (KEDA, {"carillon-api": 1, "carillon-worker": 1}),
        (LEAST, {"carillon-api": 1, "carillon-worker": 1}),
        ({"api": {"podDisruptionBudget": {"enabled": False}}}, {"carillon-worker": 1}),
    ],
)
def test_every_part_has_a_budget(render: Renderer, values: Values, expected: dict[str, int | str]) -> None:
    """One pod may be unavailable, also if it is the only one, so that no node is kept from being drained."""
    budgets = [item for item in render(values) if item["kind"] == "PodDisruptionBudget"]
    assert expected == {item["metadata"]["name"]: item["spec"]["maxUnavailable"] for item in budgets}
    assert {"AlwaysAllow"} >= {item["spec"]["unhealthyPodEvictionPolicy"] for item in budgets}


@pytest.mark.parametrize(
    "values",
    [
        {"api": {"autoscaling": {"enabled": True, "minReplicas": 7}}},
        {"worker": {"autoscaling": {"enabled": True, "minReplicas": 11}}},
        {"worker": {"autoscaling": {"enabled": True, "kind": "hpa", "minReplicas": 11}}},
    ],
)
def test_bounds_must_leave_room(render: Renderer, values: Values) -> None:
    """More at least than at most is refused in words."""
    assert "autoscaling.maxReplicas" in render.refusal(values)
