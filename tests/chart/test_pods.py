"""How the processes are run: commands, settings, probes, rolling, spreading."""

import json

import pytest

from app.config import ENV_PREFIX, Settings, load_settings
from tests.chart.manifests import (
    COMPONENT,
    api_service,
    chart_names,
    container,
    containers,
    environment,
    only,
    pod_template,
    pods,
    settings_of,
)
from tests.chart.rendering import CHART, Renderer, Values
from tests.chart.values import DEFAULTS, EVERYTHING, HIGHLY_AVAILABLE, LEAST, MINIMAL, OPERATOR, PLACEMENT, every_values

# Where the chart knows better than a process that may run on somebody's desk.
CLUSTER_DEFAULTS = {"host": "::", "log_format": "json", "public_url": "http://carillon.bells.svc:80"}
# No settings of a cluster: the port is fixed, there are no embedded servers and nothing shall die. Metrics have a port
# of their own; a token for them is given by `extraEnv`.
NOT_IN_A_CLUSTER = {
    *("port", "data_dir", "failpoints", "auth_bearer_token", "metrics_token"),
    *("operator_url", "operator_tokens_dir", "operator_lease"),
}
components = pytest.mark.parametrize("component", ["api", "worker"])


def test_each_process_has_its_command(render: Renderer) -> None:
    """One image, a command for each; nothing is run by a shell."""
    commands = {item["name"]: item["args"] for item in containers(render(EVERYTHING)) if "args" in item}
    assert {
        "api": ["api"],
        "worker": ["worker", "--processes", "1"],
        "migrate": ["migrate", "--wait-seconds", "3580", "--grant-to", "carillon_runtime"],
        "partitions": ["migrate", "--drop-old"],
        "check": ["apply", "--database", "-f", "/schedules", "--prune", "--dry-run"],
        "apply": ["apply", "--database", "-f", "/schedules", "--prune"],
    } == commands
    assert ["worker", "--processes", "4"] == container(render(HIGHLY_AVAILABLE), "worker")["args"]


def test_names_exist_in_the_settings(render: Renderer) -> None:
    """Every variable that the chart sets is one that the code reads."""
    given = chart_names(render(EVERYTHING)) - {entry["name"] for entry in EVERYTHING["extraEnv"]}
    given |= chart_names(render(OPERATOR))
    known = {ENV_PREFIX + name.upper() for name in Settings.__struct_fields__}
    assert set() == given - known - {"CRON_RUN_TOKEN"}


def test_every_setting_can_be_given() -> None:
    """Whatever the code can be told, the chart can say: as a setting, a secret or a port."""
    properties = json.loads((CHART / "values.schema.json").read_text())["properties"]
    sayable = {*properties["settings"]["properties"], *properties["secretKeys"]["properties"]}
    sayable |= {"metricsPort", "apiMetricsPort"}
    # The operator's own values; its URL, its folder of tokens and its Lease are the chart's.
    operator = {"namespaces", "namespacePrefix", "resyncSeconds"}
    assert operator <= set(properties["operator"]["properties"])
    sayable |= {f"operator{name[0].upper()}{name[1:]}" for name in operator}
    snake = {"".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name) for name in sayable}
    assert set(Settings.__struct_fields__) == snake | NOT_IN_A_CLUSTER


def test_default_settings_are_those_of_the_code(render: Renderer) -> None:
    """The code can read the chart's settings, and they change nothing but what a cluster needs."""
    settings = load_settings(settings_of(render(DEFAULTS)))
    changed = {name: getattr(settings, name) for name in Settings.__struct_fields__}
    defaults = {name: getattr(Settings(), name) for name in Settings.__struct_fields__}
    assert CLUSTER_DEFAULTS == {name: value for name, value in changed.items() if value != defaults[name]}


def test_given_settings_arrive_as_they_were_meant(render: Renderer) -> None:
    """Lists, fractions and large numbers are written out whole, not as 1e+07; what is blank is left out."""
    given = {"httpAllow": ["10.0.0.0/8", "a.b"], "reconcileSeconds": 0.5, "rateLimitPerMinute": 10_000_000}
    settings = settings_of(render({**MINIMAL, "settings": {**given, "schedulesEnabled": False}}))
    assert "10.0.0.0/8,a.b" == settings["CARILLON_HTTP_ALLOW"]
    assert "0.5" == settings["CARILLON_RECONCILE_SECONDS"]
    assert "10000000" == settings["CARILLON_RATE_LIMIT_PER_MINUTE"]
    assert "false" == settings["CARILLON_SCHEDULES_ENABLED"]
    assert "CARILLON_OTEL_ENDPOINT" not in settings


@pytest.mark.parametrize("name", ["api", "worker", "apply", "wait-for-migrations"])
def test_settings_and_extras_reach_the_processes(render: Renderer, name: str) -> None:
    """Each reads the ConfigMap, then what the values add."""
    values = {**EVERYTHING, "migrations": {"enabled": False}}
    item = container(render(values), name)
    assert [{"configMapRef": {"name": "bells"}}, *EVERYTHING["extraEnvFrom"]] == item["envFrom"]
    assert EVERYTHING["extraEnv"] == [environment(item)[extra["name"]] for extra in EVERYTHING["extraEnv"]]


def test_placement_reaches_every_pod(render: Renderer) -> None:
    """Node selectors, tolerations, affinities, classes, pull secrets, labels and annotations are passed on as given."""
    for pod in pods(render(EVERYTHING)):
        if pod.get("kind") != "Pod":
            assert PLACEMENT["podAnnotations"].items() <= pod["metadata"]["annotations"].items()
            assert PLACEMENT["podLabels"].items() <= pod["metadata"]["labels"].items()
        for name in ("nodeSelector", "tolerations", "affinity", "priorityClassName"):
            assert PLACEMENT[name] == pod["spec"][name]
        assert EVERYTHING["imagePullSecrets"] == pod["spec"]["imagePullSecrets"]
        assert EVERYTHING["extraVolumes"][0] in pod["spec"]["volumes"]


@every_values
def test_every_container_has_resources(render: Renderer, values: Values) -> None:
    """Every container asks for CPU and memory, has a limit to its memory, and none to its CPU."""
    for item in containers(render(values)):
        assert {"cpu", "memory"} == set(item["resources"]["requests"])
        assert {"memory"} == set(item["resources"]["limits"])


@components
def test_changed_settings_roll_the_pods(render: Renderer, component: str) -> None:
    """Another setting gives another pod template; another number of replicas does not."""
    before = pod_template(render(MINIMAL), component)
    assert before != pod_template(render({**MINIMAL, "settings": {"logLevel": "debug"}}), component)
    assert before == pod_template(render({**MINIMAL, component: {"replicas": 9}}), component)


@components
def test_a_changed_secret_rolls_the_pods(render: Renderer, component: str) -> None:
    """A value given for a Secret of the chart's making gives another pod template; what is made up anew does not."""
    given = {"create": True, "databaseUrl": "postgresql://db/x", "redisUrl": "redis://r"}
    before = pod_template(render({"secret": given}), component)
    assert before == pod_template(render({"secret": given}, "--is-upgrade"), component)
    assert before != pod_template(render({"secret": {**given, "redisUrl": "redis://s"}}), component)


@components
@pytest.mark.parametrize("drain_seconds", [0, 25, 90.5])
def test_pods_are_given_time_to_drain(render: Renderer, component: str, drain_seconds: float) -> None:
    """The grace period lies above the pause before the signal and the drain, with some seconds to spare."""
    template = pod_template(render({**MINIMAL, "settings": {"drainSeconds": drain_seconds}}), component)
    assert 5 + drain_seconds + 10 <= template["spec"]["terminationGracePeriodSeconds"] < drain_seconds + 20


def test_the_api_serves_until_everybody_knows(render: Renderer) -> None:
    """The API goes on while its endpoint is being removed; a worker may drain at once."""
    manifests = render({"api": {"preStopSeconds": 12}})
    # By Python, as a base image may come without `sleep`: the hook would fail, and the pod would end at once.
    command = ["python", "-c", "import time; time.sleep(12)"]
    assert {"preStop": {"exec": {"command": command}}} == container(manifests, "api")["lifecycle"]
    assert "lifecycle" not in container(manifests, "worker")
    assert 25 + 12 + 10 == pod_template(manifests, "api")["spec"]["terminationGracePeriodSeconds"]


@components
def test_pods_are_replaced_without_a_gap(render: Renderer, component: str) -> None:
    """No pod goes before its successor is ready."""
    strategy = only(render(MINIMAL), "Deployment", f"-{component}")["spec"]["strategy"]
    assert {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}} == strategy


@pytest.mark.parametrize(
    ("component", "port", "ports"),
    [("api", "http", {"http": 8000, "metrics": 9100}), ("worker", "metrics", {"metrics": 9100})],
)
def test_processes_are_probed(render: Renderer, component: str, port: str, ports: dict[str, int]) -> None:
    """Readiness asks about the stores, liveness only about the process: a restart brings no database back."""
    item = container(render(MINIMAL), component)
    probes = {name: item[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    ready, live = {"path": "/health/ready", "port": port}, {"path": "/health/live", "port": port}
    assert {"startupProbe": live, "readinessProbe": ready, "livenessProbe": live} == probes
    assert ports == {entry["name"]: entry["containerPort"] for entry in item["ports"]}


def test_processes_listen_where_they_are_probed(render: Renderer) -> None:
    """The API's port is fixed and the Service leads to it; the worker's is told to the worker."""
    manifests = render(EVERYTHING)
    assert "8000" == settings_of(manifests)["CARILLON_PORT"]
    assert ["http"] == [port["targetPort"] for port in api_service(manifests)["spec"]["ports"]]
    worker = container(manifests, "worker")
    assert "9200" == environment(worker)["CARILLON_METRICS_PORT"]["value"]
    assert "9300" == environment(container(manifests, "api"))["CARILLON_API_METRICS_PORT"]["value"]
    assert [9200] == [port["containerPort"] for port in worker["ports"]]


def test_probes_can_be_given_more_time(render: Renderer) -> None:
    """Times of probes are values; what they ask is not."""
    item = container(render({"worker": {"probes": {"liveness": {"failureThreshold": 9}}}}), "worker")
    expected = {"periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 9}
    assert {"httpGet": {"path": "/health/live", "port": "metrics"}, **expected} == item["livenessProbe"]


@components
def test_pods_are_spread(render: Renderer, component: str) -> None:
    """Over zones and nodes, counting the component's own pods of the same revision."""
    constraints = pod_template(render(DEFAULTS), component)["spec"]["topologySpreadConstraints"]
    selector = only(render(DEFAULTS), "Deployment", f"-{component}")["spec"]["selector"]
    assert ["topology.kubernetes.io/zone", "kubernetes.io/hostname"] == [item["topologyKey"] for item in constraints]
    assert [(selector, ["pod-template-hash"])] * 2 == [
        (item["labelSelector"], item["matchLabelKeys"]) for item in constraints
    ]


def test_spreading_is_a_choice(render: Renderer) -> None:
    """A constraint with a selector of its own stays as it is; without constraints nothing is spread."""
    given = {
        "maxSkew": 2,
        "topologyKey": "rack",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"a": "b"}},
    }
    manifests = render({"api": {"topologySpreadConstraints": [given]}})
    assert [given] == pod_template(manifests, "api")["spec"]["topologySpreadConstraints"]
    assert "topologySpreadConstraints" not in pod_template(render(LEAST), "api")["spec"]


@every_values
def test_selectors_choose_their_own_pods_only(render: Renderer, values: Values) -> None:
    """Each Deployment, budget and the Service select the pods of one component, and no other's."""
    manifests = render(values)
    labels = [pod["metadata"]["labels"] for pod in pods(manifests)]
    selecting = [item for item in manifests if item["kind"] in {"Deployment", "PodDisruptionBudget"}]
    chosen = [(item["metadata"]["labels"][COMPONENT], item["spec"]["selector"]["matchLabels"]) for item in selecting]
    for expected, selector in [*chosen, ("api", api_service(manifests)["spec"]["selector"])]:
        assert [expected] == [one[COMPONENT] for one in labels if selector.items() <= one.items()]


def test_an_account_of_ones_own_is_used_everywhere(render: Renderer) -> None:
    """A given account serves all pods, and none is made."""
    manifests = render({**MINIMAL, "serviceAccount": {"create": False, "name": "mine"}})
    assert {"mine"} == {pod["spec"]["serviceAccountName"] for pod in pods(manifests)}
    assert "ServiceAccount" not in {item["kind"] for item in manifests}
