"""What may be given to the chart, what is refused, and what is said about it."""

import pytest

from tests.chart.manifests import chart_names
from tests.chart.rendering import Renderer, Values
from tests.chart.values import EVERYTHING, OPERATOR
from tests.chart.values_table import comments, defaults, leaves, schema, table, written


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replicaCount": 2}, "replicaCount"),
        ({"api": {"replica": 2}}, "replica"),
        ({"api": {"replicas": "two"}}, "replicas"),
        ({"api": {"autoscaling": {"maxReplicas": 0}}}, "maxReplicas"),
        ({"api": {"probes": {"liveness": {"path": "/health/ready"}}}}, "path"),
        ({"api": {"podLabels": {"app.kubernetes.io/component": "worker"}}}, "component"),
        ({"api": {"podDisruptionBudget": {"maxUnavailable": "all"}}}, "maxUnavailable"),
        ({"api": {"tolerations": [{"keys": "x"}]}}, "keys"),
        ({"worker": {"autoscaling": {"kind": "queue"}}}, "kind"),
        ({"worker": {"metricsPort": 8000}}, "metricsPort"),
        ({"worker": {"processes": 0}}, "processes"),
        ({"settings": {"leaseSecond": 2}}, "leaseSecond"),
        ({"settings": {"leaseSeconds": "long"}}, "leaseSeconds"),
        ({"settings": {"drainSeconds": None}}, "drainSeconds"),
        ({"settings": {"httpAllow": "10.0.0.0/8"}}, "httpAllow"),
        ({"settings": {"publicUrl": "bells:8000"}}, "publicUrl"),
        ({"settings": {"historyDays": -1}}, "historyDays"),
        ({"settings": {"otelEndpoint": "collector:4318"}}, "otelEndpoint"),
        ({"settings": {"otelSampleRatio": 2}}, "otelSampleRatio"),
        ({"secretKeys": {"databaseUrl": ""}}, "databaseUrl"),
        ({"existingSecret": ""}, "existingSecret"),
        ({"image": {"digest": "sha256:short"}}, "digest"),
        ({"runAs": {"user": 0}}, "user"),
        ({"extraEnv": [{"name": "CARILLON_DATABASE_URL", "value": "postgresql://in-the-open"}]}, "extraEnv"),
        ({"extraEnv": [{"name": "X", "valueOf": {}}]}, "valueOf"),
        ({"extraVolumes": [{"name": "node", "hostPath": {"path": "/"}}]}, "hostPath"),
        ({"extraVolumes": [{"name": "tmp", "emptyDir": {}}]}, "extraVolumes"),
        ({"operator": {"namespaces": "shop"}}, "namespaces"),
        ({"operator": {"namespaces": ["Shop"]}}, "namespaces"),
        ({"schedules": {"a": {"workflows": []}}}, "namespace"),
        ({"schedules": {"a": {"namespace": "a", "jobs": []}}}, "jobs"),
        ({"schedules": {"a": {"namespace": "a", "schedules": [{"name": "x"}]}}}, "workflow"),
        ({"schedules": {"../a": {"namespace": "a"}}}, "../a"),
        ({"schedules": [{"namespace": "a"}]}, "schedules"),
        ({"ingress": {"hosts": [{"host": "a.b"}]}}, "hosts"),
        ({"httpRoute": {"parentRefs": [{"gateway": "x"}]}}, "gateway"),
        ({"networkPolicy": {"webhooks": {"to": [{"cidr": "0.0.0.0/0"}]}}}, "cidr"),
        ({"monitoring": {"podMonitor": {"interval": "often"}}}, "interval"),
        ({"postgresql": {"enabled": True}}, "postgresql"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_wrong_values_are_refused_by_name(render: Renderer, values: Values, named: str) -> None:
    """A value that is unknown, ill-typed, or would put a secret into the open is refused and named."""
    assert named in render.refusal(values)


def test_a_parent_chart_may_share_values(render: Renderer) -> None:
    """What a parent chart gives to all is nobody's mistake."""
    assert render({"global": {"region": "x"}})


def test_the_schema_reserves_what_the_chart_sets(render: Renderer) -> None:
    """Exactly the names that the chart sets itself are refused in extraEnv."""
    reserved = schema()["definitions"]["variable"]["properties"]["name"]["not"]["enum"]
    given = chart_names(render(EVERYTHING)) - {entry["name"] for entry in EVERYTHING["extraEnv"]}
    assert sorted(given | chart_names(render(OPERATOR))) == reserved


def test_the_schema_describes_the_values_and_no_more() -> None:
    """Every default value is described, every described value has a default, and groups are closed."""
    assert set(schema()["properties"]) == {*defaults(), "global"}
    compare(defaults(), schema())


def compare(values: Values, described: Values) -> None:
    """The same names at every depth."""
    assert False is described["additionalProperties"]
    for name, inner in described["properties"].items():
        if "properties" in inner:
            assert set(inner["properties"]) == set(values[name]), name
            compare(values[name], inner)


def test_every_value_is_explained() -> None:
    """The comment above a value is its explanation."""
    said = comments()
    assert [] == [path for path, _ in leaves(defaults(), schema()) if not said[path].endswith((".", "}."))]


def test_the_table_of_values_is_true() -> None:
    """The README lists every value with its default and its comment: `python -m tests.chart.values_table` writes it."""
    assert table() == written()
