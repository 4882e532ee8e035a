"""What is scraped, what is drawn, what is alarmed about."""

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import Counter, Gauge, Histogram, Info

from app.observability import metrics
from tests.chart.manifests import api_service, container, only, pods
from tests.chart.rendering import CHART, Renderer
from tests.chart.values import DEFAULTS, EVERYTHING, MINIMAL, MONITORING

WATCHED = {**MINIMAL, "monitoring": MONITORING}
ALERTS = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((CHART / "files" / "dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [rule["expr"] for rule in RULES] + [target["expr"] for panel in PANELS for target in panel["targets"]]


def exported() -> dict[str, set[str]]:
    """Every series of Carillon with the labels that it has beside those of its pod, from the code that exports them."""
    found: dict[str, set[str]] = {}
    for one in vars(metrics).values():
        if isinstance(one, Counter):
            found[f"{one._name}_total"] = set(one._labelnames)
        elif isinstance(one, metrics.PlainHistogram):
            labels = {one.label} - {""}
            found |= {f"{one.name}_bucket": {*labels, "le"}, f"{one.name}_count": labels}
        elif isinstance(one, Histogram):
            found[f"{one._name}_bucket"] = {*one._labelnames, "le"}
            found[f"{one._name}_count"] = set(one._labelnames)
        elif isinstance(one, Gauge):
            found[one._name] = set(one._labelnames)
        elif isinstance(one, Info):
            found[f"{one._name}_info"] = set(one._value)
    return found


METRICS = exported()
# Read from Postgres by every API pod, so that a sum would count them again and again.
SHARED = {f"carillon_{name}" for name in ("due_ticks", "oldest_overdue_seconds", "schedules", "workers", "breakers")}
OF_THE_POD = {"namespace", "pod", "cluster"}
# With those of kube-state-metrics.
ALL_METRICS = {**METRICS, "kube_job_failed": {"condition", "job_name"}}
RUNBOOKS = "https://carillon.dev/docs/operating.md"


def selectors(expression: Any) -> Iterator[Any]:
    """Every selector of series in a parsed expression."""
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression
    for name in ("expr", "lhs", "rhs", "vector_selector", "args"):
        inner = getattr(expression, name, None)
        for part in inner if isinstance(inner, list) else [inner]:
            if part is not None and not isinstance(part, str):
                yield from selectors(part)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_ask_for_what_there_is(expression: str) -> None:
    """Prometheus can read each, and the metrics and labels exist."""
    found = list(selectors(promql_parser.parse(expression)))
    assert found
    for selector in found:
        labels = {matcher.name for matcher in selector.matchers.matchers}
        assert set() == labels - ALL_METRICS[selector.name] - OF_THE_POD
    grouped = {label for group in re.findall(r"by \(([^)]*)\)", expression) for label in re.split(r",\s*", group)}
    assert set() == grouped - OF_THE_POD - set().union(*(ALL_METRICS[selector.name] for selector in found))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_what_every_pod_reports_is_not_added_up(expression: str) -> None:
    """What is read from Postgres is the same in every pod: the greatest is taken."""
    for name in SHARED & set(re.findall(r"carillon_\w+", expression)):
        assert re.search(rf"max( by \([^)]*\))? \(?(deriv\()?{name}|max\({name}", expression), expression
        assert not re.search(rf"sum[^a-z]*{name}", expression)


def test_every_metric_is_drawn() -> None:
    """Nothing is exported that the dashboard does not show."""
    drawn = set(re.findall(r"carillon_\w+", json.dumps(PANELS)))
    assert set() == {name for name in METRICS if not name.endswith("_count")} - drawn


def test_every_metric_is_documented() -> None:
    """With its labels, for whoever runs Carillon."""
    text = (CHART.parents[1] / "docs" / "operating.md").read_text()
    plain = {re.sub("_(bucket|count)$", "", name) for name in METRICS}
    assert set() == plain - set(re.findall(r"carillon_\w+", text))


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_every_alert_has_its_page(rule: dict[str, Any]) -> None:
    """The runbook is a heading of the page that it names."""
    base, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    headings = re.findall(r"^#+ (.+)$", (CHART.parents[1] / "docs" / "operating.md").read_text(), re.MULTILINE)
    assert RUNBOOKS == base
    assert anchor in {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_panels_do_not_overlap() -> None:
    """Each panel has an id and a place of its own, within the width."""
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [(at["x"] + x, at["y"] + y) for at in places for x in range(at["w"]) for y in range(at["h"])]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len(places) == len({panel["id"] for panel in DASHBOARD["panels"]})


def test_panels_follow_the_choices() -> None:
    """Every query goes to the chosen source and namespace."""
    targets = [target for panel in PANELS for target in panel["targets"]]
    assert {"${datasource}"} == {target["datasource"]["uid"] for target in targets}
    assert [] == [target["expr"] for target in targets if 'namespace=~"$namespace"' not in target["expr"]]
    assert ["datasource", "namespace"] == [item["name"] for item in DASHBOARD["templating"]["list"]]


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_alerts_say_what_to_do(rule: dict[str, Any]) -> None:
    """Each has a severity, words, and a heading of the runbook that is its own name."""
    kebab = re.sub(r"(?<!^)([A-Z])", r"-\1", rule["alert"].removeprefix("Carillon")).lower()
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert {"summary", "description", "runbook_url"} == set(rule["annotations"])
    assert f"{RUNBOOKS}#alert-{kebab}" == rule["annotations"]["runbook_url"]
    assert "by (cluster, namespace" in rule["expr"] or "absent(" in rule["expr"]


def installed(render: Renderer, **given: Any) -> dict[str, dict[str, Any]]:
    """The alerts of the PrometheusRule, by name."""
    rule = only(render({"monitoring": {"prometheusRule": {"enabled": True, **given}}}), "PrometheusRule")
    return {alert["alert"]: alert for alert in rule["spec"]["groups"][0]["rules"]}


def test_the_rule_holds_the_alerts(render: Renderer) -> None:
    """What is installed is the file, its templates untouched, and every selector is limited to the release."""
    release = 'namespace="bells",job=~"(bells/)?carillon-(api-metrics|operator|worker)"'
    alerts = installed(render)
    for rule in RULES:
        limited = rule["expr"].replace('namespace=~".+"', release).replace('namespace=~".*"', 'namespace="bells"')
        limited = limited.replace('job_name=~".+-(', 'job_name=~"carillon-(')
        assert {**rule, "expr": limited} == alerts[rule["alert"]]
        for selector in selectors(promql_parser.parse(limited)):
            assert "namespace" in {matcher.name for matcher in selector.matchers.matchers}
    assert len(RULES) == len(alerts)


def test_jobs_of_the_monitors_are_those_of_the_alerts(render: Renderer) -> None:
    """The operator names the job of a ServiceMonitor after its Service, of a PodMonitor after namespace and name."""
    manifests = render({**WATCHED, "operator": {"enabled": True, "tokensSecret": "tokens"}})
    service = only(manifests, "Service", "-api-metrics")
    monitors = [item["metadata"]["name"] for item in manifests if item["kind"] == "PodMonitor"]
    assert ["carillon-operator", "carillon-worker"] == sorted(monitors)
    for name in (service["metadata"]["name"], *(f"bells/{monitor}" for monitor in monitors)):
        assert re.fullmatch("(bells/)?carillon-(api-metrics|operator|worker)", name)


def test_alerts_can_be_changed(render: Renderer) -> None:
    """Links, labels, severity, duration, thresholds and matchers are values; an unknown alert is refused."""
    alerts = installed(
        render,
        runbookBase="https://wiki.example.org/bells",
        alertLabels={"team": "bells"},
        matchers='release="x"',
        alerts={"CarillonLate": {"enabled": False}, "CarillonOverdue": {"severity": "info", "for": "1h"}},
        thresholds={"overdueSeconds": 90.5, "latenessErrorBudget": 0.01},
    )
    overdue = alerts["CarillonOverdue"]
    assert ("info", "1h", "bells") == (overdue["labels"]["severity"], overdue["for"], overdue["labels"]["team"])
    assert "https://wiki.example.org/bells#alert-overdue" == overdue["annotations"]["runbook_url"]
    assert '{release="x"}' in overdue["expr"]
    assert "> 90.5 # overdueSeconds" in overdue["expr"]
    assert "> 14.4 * 0.01 # latenessErrorBudget" in alerts["CarillonLatenessBudgetFast"]["expr"]
    assert "CarillonLate" not in alerts
    unknown = {"monitoring": {"prometheusRule": {"enabled": True, "alerts": {"CarillonLatte": {}}}}}
    assert "CarillonLatte is not an alert" in render.refusal(unknown)


def test_every_threshold_is_a_value() -> None:
    """The numbers with a name in the file are the defaults of the values."""
    named = set(re.findall(r"([0-9.]+) # (\w+)$", "\n".join(rule["expr"] for rule in RULES), re.MULTILINE))
    values = yaml.safe_load((CHART / "values.yaml").read_text())["monitoring"]["prometheusRule"]["thresholds"]
    assert values == {name: float(number) for number, name in named}


def test_the_dashboard_is_the_file(render: Renderer) -> None:
    """Grafana's sidecar finds a ConfigMap with the whole dashboard."""
    item = only(render(WATCHED), "ConfigMap", "-dashboard")
    assert [DASHBOARD] == [json.loads(text) for text in item["data"].values()]
    assert "1" == item["metadata"]["labels"]["grafana_dashboard"]
    assert {"grafana_folder": "Bells"} == item["metadata"]["annotations"]


def test_the_api_is_scraped_by_its_service(render: Renderer) -> None:
    """The ServiceMonitor selects the Service for metrics, and names its port; the clients' Service has no such port."""
    manifests = render(WATCHED)
    monitor, service = only(manifests, "ServiceMonitor"), only(manifests, "Service", "-api-metrics")
    selector = monitor["spec"]["selector"]["matchLabels"].items()
    assert selector <= service["metadata"]["labels"].items()
    assert not selector <= api_service(manifests)["metadata"]["labels"].items()
    assert [{"port": "metrics", "path": "/metrics", "interval": "30s"}] == monitor["spec"]["endpoints"]
    assert [("metrics", "metrics")] == [(port["name"], port["targetPort"]) for port in service["spec"]["ports"]]
    assert ("ClusterIP", "None") == (service["spec"]["type"], service["spec"]["clusterIP"])
    assert ["http"] == [port["name"] for port in api_service(manifests)["spec"]["ports"]]
    assert api_service(manifests)["spec"]["selector"] == service["spec"]["selector"]


def test_workers_are_scraped_one_by_one(render: Renderer) -> None:
    """The PodMonitor selects the workers' pods alone, and names their port."""
    manifests = render(EVERYTHING)
    monitor = only(manifests, "PodMonitor")["spec"]
    chosen = monitor["selector"]["matchLabels"].items()
    selected = [pod for pod in pods(manifests) if chosen <= pod["metadata"]["labels"].items()]
    assert [["worker"]] == [[item["name"] for item in pod["spec"]["containers"]] for pod in selected]
    assert [{"port": "metrics", "path": "/metrics", "interval": "10s"}] == monitor["podMetricsEndpoints"]
    assert ["metrics"] == [port["name"] for port in container(manifests, "worker")["ports"]]


def test_operators_find_what_is_theirs(render: Renderer) -> None:
    """Given labels are added to those of the chart."""
    manifests = render(WATCHED)
    for kind in ("ServiceMonitor", "PodMonitor", "PrometheusRule"):
        assert "prometheus" == only(manifests, kind)["metadata"]["labels"]["release"]


def test_nothing_is_watched_unasked(render: Renderer) -> None:
    """Without the operators' kinds in the cluster the defaults still install."""
    assert {"v1", "apps/v1", "batch/v1", "policy/v1"} == {item["apiVersion"] for item in render(DEFAULTS)}
