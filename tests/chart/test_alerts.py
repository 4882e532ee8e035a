"""Each alert fires when it should, and none fires in a failover of 40 seconds: by `promtool test rules`."""

import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.chart.helms import COMMAND_TIMEOUT_SECONDS, run
from tests.chart.manifests import only
from tests.chart.promtool import PromtoolMissingError, find_promtool
from tests.chart.rendering import CHART, Renderer
from tests.chart.values import MINIMAL
from tests.support.skip_reports import leave_untested

API = 'cluster="c",namespace="bells",job="carillon-api-metrics",pod="api"'
WORKER = 'cluster="c",namespace="bells",job="bells/carillon-worker",pod="worker"'
OTHER_WORKER = 'cluster="c",namespace="bells",job="bells/carillon-worker",pod="other"'
OPERATOR = 'cluster="c",namespace="bells",job="bells/carillon-operator",pod="operator"'
ALERTS = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"][0]["rules"]


class Times(msgspec.Struct, frozen=True):
    """How far scrapes and evaluations are apart, and how many there are."""

    step_seconds: int = 20
    steps: int = 300


# Values of series, as promtool writes them: a start, and a step that is added so many times.
Series = dict[str, str]
ALWAYS_ON = {
    f"carillon_build_info{{{API}}}": "1x300",
    f"carillon_postgres_up{{{API}}}": "1x300",
    f"carillon_workers{{{API}}}": "2x300",
    f"carillon_due_ticks{{{API}}}": "0x300",
    f"carillon_oldest_overdue_seconds{{{API}}}": "0x300",
    f'carillon_schedules{{{API},status="dead"}}': "0x300",
    f'carillon_breakers{{{API},state="open"}}': "0x300",
    f'carillon_http_requests_total{{{API},route="/api/v1/schedules",status="200"}}': "0+100x300",
    f'carillon_http_requests_total{{{API},route="/api/v1/schedules",status="503"}}': "0x300",
    f'carillon_http_requests_total{{{API},route="/api/v1/schedules",status="500"}}': "0x300",
    f'carillon_http_requests_total{{{API},route="/health/ready",status="503"}}': "0x300",
    f'carillon_http_request_seconds_bucket{{{API},route="/api/v1/schedules",le="0.5"}}': "0+100x300",
    f'carillon_http_request_seconds_bucket{{{API},route="/api/v1/schedules",le="10.0"}}': "0+100x300",
    f'carillon_http_request_seconds_bucket{{{API},route="/api/v1/schedules",le="+Inf"}}': "0+100x300",
    f"carillon_operator_leader{{{OPERATOR}}}": "1x300",
    f'carillon_operator_objects{{{OPERATOR},kind="schedule",ready="false"}}': "0x300",
    f"carillon_mode{{{WORKER}}}": "1x300",
    f"carillon_mode{{{OTHER_WORKER}}}": "1x300",
    f'carillon_database_connections{{{WORKER},state="in_use"}}': "5x300",
    f"carillon_database_connections_limit{{{WORKER}}}": "20x300",
    f"carillon_quarantined_total{{{WORKER}}}": "0x300",
    f"carillon_commits_lost_total{{{WORKER}}}": "0x300",
    f'carillon_executions_ended_total{{{WORKER},status="success"}}': "0+200x300",
    f'carillon_executions_ended_total{{{WORKER},status="failed"}}': "0x300",
    f'carillon_lateness_seconds_bucket{{{WORKER},le="1.0"}}': "0+200x300",
    f'carillon_lateness_seconds_bucket{{{WORKER},le="60.0"}}': "0+200x300",
    f'carillon_lateness_seconds_bucket{{{WORKER},le="+Inf"}}': "0+200x300",
    f"carillon_lateness_seconds_count{{{WORKER}}}": "0+200x300",
    f'carillon_slots_missed_total{{{WORKER},outcome="missed"}}': "0x300",
    f'carillon_slots_missed_total{{{WORKER},outcome="skipped_overlap"}}': "0+1x300",
}
EVERY_RUN_LATE = {f'carillon_lateness_seconds_bucket{{{WORKER},le="1.0"}}': "0x300"}
# One run of a hundred: ten times the budget.
SOME_RUNS_LATE = {f'carillon_lateness_seconds_bucket{{{WORKER},le="1.0"}}': "0+198x300"}
MISSING = f'carillon_slots_missed_total{{{WORKER},outcome="missed"}}'
FAILED_JOB = 'kube_job_failed{cluster="c",namespace="bells",job_name="carillon-migrate",condition="true"}'
FAILED_PODS = 'kube_job_status_failed{cluster="c",namespace="bells",job_name="carillon-migrate"}'
FIRING: dict[str, Series] = {
    "NothingFires": {
        f"carillon_due_ticks{{{API}}}": "5x300",
        f"carillon_lateness_seconds_count{{{WORKER}}}": "7x300",
        f'carillon_executions_ended_total{{{WORKER},status="success"}}': "7x300",
    },
    "NoWorker": {f"carillon_workers{{{API}}}": "0x300"},
    "PostgresAway": {f"carillon_postgres_up{{{API}}}": "0x300"},
    "Overdue": {f"carillon_oldest_overdue_seconds{{{API}}}": "61x300"},
    "BacklogGrowing": {f"carillon_due_ticks{{{API}}}": "101+1x300"},
    "Late": {**EVERY_RUN_LATE, f'carillon_lateness_seconds_bucket{{{WORKER},le="60.0"}}': "0+200x300"},
    "LatenessBudgetFast": EVERY_RUN_LATE,
    "LatenessBudgetSlow": SOME_RUNS_LATE,
    "SlotsBudgetFast": {MISSING: "0+10x300"},
    "SlotsBudgetSlow": {MISSING: "0+1x300"},
    "SlotsMissed": {MISSING: "0+1x300"},
    "RunsFailing": {f'carillon_executions_ended_total{{{WORKER},status="failed"}}': "0+50x300"},
    "BreakersOpen": {f'carillon_breakers{{{API},state="open"}}': "1x300"},
    "SchedulesDead": {f'carillon_schedules{{{API},status="dead"}}': "1x300"},
    "Quarantined": {f"carillon_quarantined_total{{{WORKER}}}": "0x295 1x5"},
    "CommitsLost": {f"carillon_commits_lost_total{{{WORKER}}}": "0x295 1x5"},
    "RedisAway": {f"carillon_mode{{{WORKER}}}": "0x300", f"carillon_mode{{{OTHER_WORKER}}}": "0x300"},
    "WorkerWithoutRedis": {f"carillon_mode{{{WORKER}}}": "0x300"},
    "PoolExhausted": {f'carillon_database_connections{{{WORKER},state="in_use"}}': "19x300"},
    "DatabaseErrors": {f'carillon_http_requests_total{{{API},route="/api/v1/schedules",status="503"}}': "0+10x300"},
    "ApiErrors": {f'carillon_http_requests_total{{{API},route="/api/v1/schedules",status="500"}}': "0+10x300"},
    "ApiSlow": {f'carillon_http_request_seconds_bucket{{{API},route="/api/v1/schedules",le="0.5"}}': "0+50x300"},
    "JobFailed": {FAILED_JOB: "1x300"},
    "NoOperator": {f"carillon_operator_leader{{{OPERATOR}}}": "0x300"},
    "ObjectsNotReady": {f'carillon_operator_objects{{{OPERATOR},kind="schedule",ready="false"}}': "1x300"},
    "MetricsMissing": {f"carillon_build_info{{{API}}}": "_x300"},
}


@pytest.fixture(scope="session")
def promtool(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A promtool, or a word of its absence."""
    cache = pytestconfig.cache
    try:
        return find_promtool(cache.mkdir("promtool") if cache else tmp_path_factory.mktemp("promtool"))
    except PromtoolMissingError as error:
        return leave_untested(f"the alerts with promtool: {error}")


@pytest.fixture
def rules(render: Renderer, tmp_path: Path) -> Path:
    """The rules as the chart installs them."""
    spec = only(render({**MINIMAL, "monitoring": {"prometheusRule": {"enabled": True}}}), "PrometheusRule")["spec"]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(spec))
    return path


def judged(
    promtool: Path,
    rules: Path,
    series: Series,
    checks: list[tuple[str, list[str]]],
    times: Times = Times(),  # noqa: B008
) -> None:
    """Run the rules over these series; each check is an expression at the end and the labels that it must yield."""
    step, end = f"{times.step_seconds}s", f"{times.steps * times.step_seconds}s"
    test = {
        "rule_files": [rules.name],
        "evaluation_interval": step,
        "tests": [
            {
                "interval": step,
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [
                    {"expr": expression, "eval_time": end, "exp_samples": [_sample(labels) for labels in expected]}
                    for expression, expected in checks
                ],
            }
        ],
    }
    path = rules.with_name("test.yaml")
    path.write_text(yaml.safe_dump(test))
    answer = run([str(promtool), "test", "rules", str(path)], COMMAND_TIMEOUT_SECONDS)
    assert 0 == answer.returncode, answer.stdout + answer.stderr


def _sample(labels: str) -> dict[str, Any]:
    return {"labels": labels, "value": 1}


def ever_fired(alert: str = ".+") -> str:
    """The expression for the alerts that have fired at any time."""
    return f'max by (alertname) (max_over_time(ALERTS{{alertstate="firing",alertname=~"{alert}"}}[2d]))'


def test_every_alert_is_tried() -> None:
    """An alert that nobody has seen fire is no alert."""
    assert {rule["alert"].removeprefix("Carillon") for rule in ALERTS} == set(FIRING)


@pytest.mark.parametrize("alert", sorted(FIRING))
def test_an_alert_fires(promtool: Path, rules: Path, alert: str) -> None:
    """When what it is about happens, and then it names the cluster and the namespace."""
    name = f"Carillon{alert}"
    firing = f'max by (cluster, namespace) (ALERTS{{alertstate="firing",alertname="{name}"}})'
    expected = '{namespace="bells"}' if alert == "MetricsMissing" else '{cluster="c",namespace="bells"}'
    judged(promtool, _alone(rules, name), {**ALWAYS_ON, **FIRING[alert]}, [(firing, [expected])])


def _alone(rules: Path, name: str) -> Path:
    """Write the rules without the other alerts: promtool evaluates every rule at every step."""
    groups = yaml.safe_load(rules.read_text())["groups"]
    for group in groups:
        group["rules"] = [rule for rule in group["rules"] if rule.get("alert", name) == name]
    path = rules.with_name("alone.yaml")
    path.write_text(yaml.safe_dump({"groups": groups}))
    return path


def test_nothing_fires_while_all_is_well(promtool: Path, rules: Path) -> None:
    """Readiness probes that fail, a Job that needs a second pod, and another release are no reason either."""
    others = {
        re.sub("carillon-(api|operator|worker)", r"other-\1", name): values
        for series in FIRING.values()
        for name, values in series.items()
        if "kube_job" not in name
    }
    probes = {f'carillon_http_requests_total{{{API},route="/health/ready",status="503"}}': "0+100x300"}
    jobs = {FAILED_JOB.replace("carillon-migrate", "other-migrate"): "1x300", FAILED_PODS: "1x300"}
    judged(promtool, rules, {**others, **jobs, **ALWAYS_ON, **probes}, [(ever_fired(), [])])


def test_nothing_fires_in_a_failover_of_40_seconds(promtool: Path, rules: Path) -> None:
    """After a day without a fault Postgres is away between two scrapes a minute apart, with five slots a second.

    Figures vanish, requests get 503, and all slots of these 40 seconds are late or missed.
    """
    day, after = "x1440", "x119"
    steady = {name: values.replace("x300", "x1560").replace("+200x", "+300x") for name, values in ALWAYS_ON.items()}
    runs = f"0+300{day} 432000 432300+300{after}"
    failover = {
        f"carillon_postgres_up{{{API}}}": f"1{day} 0 1{after}",
        f"carillon_workers{{{API}}}": f"2{day} stale 2{after}",
        f"carillon_due_ticks{{{API}}}": f"0{day} stale 200 0{after}",
        f"carillon_oldest_overdue_seconds{{{API}}}": f"0{day} stale 40 0{after}",
        f'carillon_http_requests_total{{{API},route="/api/v1/schedules",status="200"}}': (
            f"0+100{day} 144000 144100+100{after}"
        ),
        f'carillon_http_requests_total{{{API},route="/api/v1/schedules",status="503"}}': f"0{day} 100 100{after}",
        f'carillon_executions_ended_total{{{WORKER},status="success"}}': runs,
        f'carillon_lateness_seconds_bucket{{{WORKER},le="1.0"}}': f"0+300{day} 432000 432100+300{after}",
        f'carillon_lateness_seconds_bucket{{{WORKER},le="60.0"}}': runs,
        f'carillon_lateness_seconds_bucket{{{WORKER},le="+Inf"}}': runs,
        f"carillon_lateness_seconds_count{{{WORKER}}}": runs,
        MISSING: f"0{day} 0 200{after}",
    }
    judged(promtool, rules, {**steady, **failover}, [(ever_fired(), [])], Times(step_seconds=60, steps=1560))


def test_the_file_is_one_for_prometheus(promtool: Path) -> None:
    """Without the operator the file is used as it is."""
    command = [str(promtool), "check", "rules", str(CHART / "files" / "alerts.yaml")]
    answer: subprocess.CompletedProcess[str] = run(command, COMMAND_TIMEOUT_SECONDS)
    assert 0 == answer.returncode, answer.stdout + answer.stderr
