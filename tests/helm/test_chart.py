"""The chart, rendered by helm: what it installs, what it refuses, and that it agrees with the code."""

import json
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from app.config import ENV_PREFIX, Settings, load_settings

Manifest = dict[str, Any]
Values = dict[str, Any]
Helm = Callable[..., subprocess.CompletedProcess[str]]
Chart = Callable[..., list[Manifest]]

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "carillon"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
KUBERNETES_VERSIONS = [f"1.{minor}" for minor in range(29, 38)]
LONGEST_LABEL = 63
DIGEST = "sha256:" + "ab" * 32
SECRETS = {
    "CARILLON_DATABASE_URL": "databaseUrl",
    "CARILLON_REDIS_URL": "redisUrl",
    "CARILLON_ADMIN_TOKEN": "adminToken",
    "CARILLON_SIGNING_SECRET": "signingSecret",
}
# Where the chart knows better than a process that may run on somebody's desk.
CLUSTER_DEFAULTS = {"host": "0.0.0.0", "log_format": "json"}

PLACEMENT: Values = {
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "carillon", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
            }
        }
    },
}
MINIMAL: Values = {"existingSecret": "stores"}
EVERYTHING: Values = {
    "existingSecret": "stores",
    "secretKeys": {"databaseUrl": "uri", "redisUrl": "redis.uri", "adminToken": "ADMIN", "signingSecret": "SIGNING"},
    "settings": {"httpAllow": ["10.0.0.0/8", "hooks.internal"], "drainSeconds": 90.5, "logLevel": "debug"},
    "extraEnv": [
        {"name": "TZ", "value": "UTC"},
        {"name": "CRON_RUN_TOKEN", "valueFrom": {"secretKeyRef": {"name": "stores", "key": "cron"}}},
    ],
    "image": {"repository": "team/carillon", "tag": "1.2.3", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "pull"}],
    "runAs": {"user": 1000650000, "group": 1000650000},
    "serviceAccount": {"name": "bells", "annotations": {"example.org/role": "bells"}},
    "service": {"type": "LoadBalancer", "port": 8080, "annotations": {"example.org/lb": "internal"}},
    "api": {"replicas": 3, "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}, **PLACEMENT},
    "worker": {"replicas": 5, **PLACEMENT},
    "migrations": {"backoffLimit": 0, "activeDeadlineSeconds": 3600, **PLACEMENT},
    "fullnameOverride": "bells",
}
BY_DIGEST: Values = {"existingSecret": "stores", "image": {"tag": "ignored", "digest": DIGEST}}
LEAST: Values = {
    "existingSecret": "stores",
    "secretKeys": {"adminToken": "", "signingSecret": ""},
    "runAs": {"user": None, "group": None},
    "serviceAccount": {"create": False},
    "migrations": {"enabled": False},
}
SHOP = "namespace: shop\nschedules: []\n"
DECLARED: Values = {
    "existingSecret": "stores",
    "declarations": {"files": {"shop.yaml": SHOP}, "owner": "mia", "prune": True, **PLACEMENT},
}
VALUES = {"minimal": MINIMAL, "everything": EVERYTHING, "digest": BY_DIGEST, "least": LEAST, "declared": DECLARED}
every_values = pytest.mark.parametrize("values", VALUES.values(), ids=VALUES.keys())


@pytest.fixture
def values_file(tmp_path: Path) -> Callable[[Values], str]:
    """Write values where helm can read them."""

    def write(values: Values) -> str:
        path = tmp_path / "values.json"
        path.write_text(json.dumps(values))
        return str(path)

    return write


@pytest.fixture
def refusal(helm: Helm, values_file: Callable[[Values], str]) -> Callable[[Values], str]:
    """Render values that must not work, and return what helm said."""

    def refuse(values: Values) -> str:
        answer = helm("template", "carillon", str(CHART), "--values", values_file(values))
        assert 0 != answer.returncode, f"helm accepted {values}"
        return answer.stderr

    return refuse


@pytest.fixture
def chart(helm: Helm, values_file: Callable[[Values], str]) -> Chart:
    """Render the chart into its objects."""

    def render(values: Values, release: str = "carillon") -> list[Manifest]:
        answer = helm("template", release, str(CHART), "--namespace", "bells", "--values", values_file(values))
        assert 0 == answer.returncode, answer.stderr
        return [manifest for manifest in yaml.safe_load_all(answer.stdout) if manifest]

    return render


def only(manifests: list[Manifest], kind: str, suffix: str = "") -> Manifest:
    """The one object of this kind with this end of its name."""
    found = [item for item in manifests if item["kind"] == kind and item["metadata"]["name"].endswith(suffix)]
    assert 1 == len(found), f"{len(found)} of {kind} *{suffix}"
    return found[0]


def pod_templates(manifests: list[Manifest]) -> list[Manifest]:
    """The pod template of every workload."""
    return [item["spec"]["template"] for item in manifests if "template" in item.get("spec", {})]


def containers(manifests: list[Manifest]) -> Iterator[Manifest]:
    """Every container of every workload."""
    for template in pod_templates(manifests):
        yield from template["spec"].get("initContainers", [])
        yield from template["spec"]["containers"]


def pod_template(manifests: list[Manifest], component: str) -> Manifest:
    """The pod template of the Deployment of this component."""
    template: Manifest = only(manifests, "Deployment", f"-{component}")["spec"]["template"]
    return template


def environment(container: Manifest) -> dict[str, Manifest]:
    """A container's own variables by name."""
    return {entry["name"]: entry for entry in container["env"]}


def chart_names(manifests: list[Manifest]) -> set[str]:
    """Every environment variable that the chart sets anywhere."""
    names = {name for container in containers(manifests) for name in environment(container)}
    return names | set(settings_of(manifests))


def settings_of(manifests: list[Manifest]) -> dict[str, str]:
    """The plain settings of all processes."""
    maps = [item["data"] for item in manifests if item["kind"] == "ConfigMap"]
    (found,) = (data for data in maps if "CARILLON_PORT" in data)
    return dict(found)


def is_hook(manifest: Manifest) -> bool:
    """Whether helm creates this before the release's other objects."""
    return "helm.sh/hook" in manifest["metadata"].get("annotations", {})


def default_values() -> Values:
    """The chart's own values."""
    values: Values = yaml.safe_load((CHART / "values.yaml").read_text())
    return values


@every_values
def test_lints_strictly(helm: Helm, values_file: Callable[[Values], str], values: Values) -> None:
    """`helm lint --strict` finds nothing, in the notes neither."""
    answer = helm("lint", "--strict", str(CHART), "--values", values_file(values))
    assert 0 == answer.returncode, answer.stdout + answer.stderr


@every_values
def test_objects_fit_the_schemas_of_kubernetes(chart: Chart, values: Values) -> None:
    """Every object is valid, without a field too many, in every supported version of Kubernetes."""
    for manifest in chart(values):
        for version in KUBERNETES_VERSIONS:
            assert version == kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("ServiceMonitor", kubernetes_validate.SchemaNotFoundError),
        ("ConfigMap", kubernetes_validate.ValidationError),
    ],
)
def test_the_validator_passes_nothing_silently(kind: str, error: type[Exception]) -> None:
    """An unknown kind and an unknown field are errors for the validator, not warnings."""
    manifest = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, "surprise": {}}
    with pytest.raises(error):
        kubernetes_validate.validate(manifest, KUBERNETES_VERSIONS[-1], strict=True)


@every_values
def test_pods_meet_the_restricted_standard(chart: Chart, values: Values) -> None:
    """No pod runs as root, gains privileges, holds capabilities, writes its root or carries a token."""
    templates = pod_templates(chart(values))
    assert templates
    for spec in (template["spec"] for template in templates):
        assert True is spec["securityContext"]["runAsNonRoot"]
        assert {"type": "RuntimeDefault"} == spec["securityContext"]["seccompProfile"]
        assert False is spec["automountServiceAccountToken"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert {"emptyDir", "configMap"} >= {kind for volume in spec["volumes"] for kind in volume if kind != "name"}


@every_values
def test_containers_meet_the_restricted_standard(chart: Chart, values: Values) -> None:
    """Every container drops all and can write to /tmp alone."""
    expected = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    for container in containers(chart(values)):
        assert expected == container["securityContext"]
        assert [{"name": "tmp", "mountPath": "/tmp"}] == [
            one for one in container["volumeMounts"] if "readOnly" not in one
        ]


@pytest.mark.parametrize(("values", "expected"), [(MINIMAL, 65532), (EVERYTHING, 1000650000), (LEAST, None)])
def test_ids_are_ours_given_or_left_to_the_platform(chart: Chart, values: Values, expected: int | None) -> None:
    """Pods run under the image's numeric id, under another one, or under what the platform assigns."""
    for template in pod_templates(chart(values)):
        context = template["spec"]["securityContext"]
        # As text: Kubernetes refuses 1.00065e+09, which Python finds equal.
        assert [str(expected)] * 2 == [str(context.get(name)) for name in ("runAsUser", "runAsGroup")]


def test_service_links_do_not_shadow_settings(chart: Chart) -> None:
    """A Service named carillon does not put tcp://... into CARILLON_PORT."""
    templates = pod_templates(chart(MINIMAL))
    assert [False] * 3 == [template["spec"]["enableServiceLinks"] for template in templates]


@every_values
def test_service_accounts_mount_no_token(chart: Chart, values: Values) -> None:
    """The accounts that the chart makes mount no token either."""
    for account in (item for item in chart(values) if item["kind"] == "ServiceAccount"):
        assert False is account["automountServiceAccountToken"]


@every_values
def test_selectors_choose_their_own_pods_only(chart: Chart, values: Values) -> None:
    """Each Deployment and the Service select the pods of one component, and no other's."""
    manifests = chart(values)
    service = only(manifests, "Service")["spec"]["selector"]
    api = only(manifests, "Deployment", "-api")["spec"]["selector"]["matchLabels"]
    worker = only(manifests, "Deployment", "-worker")["spec"]["selector"]["matchLabels"]
    pods = [template["metadata"]["labels"] for template in pod_templates(manifests)]
    for selector, expected in ((service, "api"), (api, "api"), (worker, "worker")):
        selected = [labels for labels in pods if selector.items() <= labels.items()]
        assert [expected] == [labels["app.kubernetes.io/component"] for labels in selected]


def test_selectors_survive_an_upgrade(chart: Chart) -> None:
    """What Kubernetes lets nobody change holds nothing that a release or other values would change."""
    expected = {"app.kubernetes.io/name": "carillon", "app.kubernetes.io/instance": "carillon"}
    for values in (MINIMAL, EVERYTHING):
        manifests = chart(values)
        for component in ("api", "worker"):
            selector = only(manifests, "Deployment", f"-{component}")["spec"]["selector"]["matchLabels"]
            assert {**expected, "app.kubernetes.io/component": component} == selector


@every_values
def test_secrets_come_from_the_secret_alone(chart: Chart, values: Values) -> None:
    """No secret setting has its value in the open; each is a reference to its key in the existing Secret."""
    manifests = chart(values)
    keys = {**default_values()["secretKeys"], **values.get("secretKeys", {})}
    assert [] == [item for item in manifests if item["kind"] == "Secret"]
    assert set() == set(SECRETS) & set(settings_of(manifests))
    for variables in map(environment, containers(manifests)):
        for name in set(SECRETS) & set(variables):
            reference = {"secretKeyRef": {"name": "stores", "key": keys[SECRETS[name]]}}
            assert {"name": name, "valueFrom": reference} == variables[name]


def test_each_process_gets_the_secrets_it_needs(chart: Chart) -> None:
    """The admin's token goes to the API alone, and the migration sees nothing but the database."""
    given = {item["name"]: set(SECRETS) & set(environment(item)) for item in containers(chart(MINIMAL))}
    assert {
        "api": set(SECRETS),
        "worker": set(SECRETS) - {"CARILLON_ADMIN_TOKEN"},
        "migrate": {"CARILLON_DATABASE_URL"},
    } == given


def test_an_empty_key_leaves_a_secret_out(chart: Chart) -> None:
    """Without a key for it neither the admin's token nor the signing secret is asked of the Secret."""
    for container in containers(chart(LEAST)):
        assert {"CARILLON_DATABASE_URL", "CARILLON_REDIS_URL"} == set(SECRETS) & set(environment(container))


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replicaCount": 2}, "replicaCount"),
        ({"api": {"replica": 2}}, "replica"),
        ({"settings": {"leaseSecond": 2}}, "leaseSecond"),
        ({"settings": {"leaseSeconds": "long"}}, "leaseSeconds"),
        ({"settings": {"drainSeconds": None}}, "drainSeconds"),
        ({"secretKeys": {"databaseUrl": ""}}, "databaseUrl"),
        ({"image": {"digest": "sha256:short"}}, "digest"),
        ({"runAs": {"user": 0}}, "user"),
        ({"extraEnv": [{"name": "CARILLON_DATABASE_URL", "value": "postgresql://in-the-open"}]}, "extraEnv"),
    ],
)
def test_wrong_values_are_refused_by_name(refusal: Callable[[Values], str], values: Values, named: str) -> None:
    """A value that is unknown, ill-typed, or would put a secret into the open is refused and named."""
    assert named in refusal({**MINIMAL, **values})


def test_a_missing_secret_is_explained(refusal: Callable[[Values], str]) -> None:
    """Without existingSecret the chart says what it wants."""
    assert "existingSecret is required: the name of a Secret in the release's namespace" in refusal({})


def test_names_exist_in_the_settings(chart: Chart) -> None:
    """Every variable that the chart sets is one that the code reads."""
    known = {ENV_PREFIX + name.upper() for name in Settings.__struct_fields__}
    assert set() == chart_names(chart(MINIMAL)) - known


def test_default_settings_are_those_of_the_code(chart: Chart) -> None:
    """The code can read the chart's settings, and they change nothing but what a cluster needs."""
    settings = load_settings(settings_of(chart(MINIMAL)))
    changed = {name: getattr(settings, name) for name in Settings.__struct_fields__}
    defaults = {name: getattr(Settings(), name) for name in Settings.__struct_fields__}
    assert CLUSTER_DEFAULTS == {name: value for name, value in changed.items() if value != defaults[name]}


def test_given_settings_arrive_as_they_were_meant(chart: Chart) -> None:
    """Lists, fractions and large numbers are written out whole, not as 1e+07."""
    given = {"httpAllow": ["10.0.0.0/8", "a.b"], "reconcileSeconds": 0.5, "rateLimitPerMinute": 10_000_000}
    settings = settings_of(chart({**MINIMAL, "settings": given}))
    assert "10.0.0.0/8,a.b" == settings["CARILLON_HTTP_ALLOW"]
    assert "0.5" == settings["CARILLON_RECONCILE_SECONDS"]
    assert "10000000" == settings["CARILLON_RATE_LIMIT_PER_MINUTE"]


def test_the_migration_has_the_same_settings(chart: Chart) -> None:
    """What the hook is given in place equals the ConfigMap that does not exist yet."""
    manifests = chart(EVERYTHING)
    variables = environment(only(manifests, "Job")["spec"]["template"]["spec"]["containers"][0])
    settings = settings_of(manifests)
    assert settings == {name: variables[name]["value"] for name in settings}


def test_the_schema_reserves_what_the_chart_sets(chart: Chart) -> None:
    """Exactly the names that the chart sets itself are refused in extraEnv."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    reserved = schema["properties"]["extraEnv"]["items"]["properties"]["name"]["not"]["enum"]
    assert sorted(chart_names(chart(MINIMAL))) == reserved


def test_the_schema_knows_every_value() -> None:
    """Every default value is described by the schema, and the schema describes nothing else."""
    described = json.loads((CHART / "values.schema.json").read_text())["properties"]
    for name, value in default_values().items():
        if "properties" in described[name]:
            assert set(described[name]["properties"]) == set(value), name
    assert set(described) == {*default_values(), "global"}


@pytest.mark.parametrize("component", ["api", "worker"])
def test_changed_settings_roll_the_pods(chart: Chart, component: str) -> None:
    """Another setting gives another pod template; another number of replicas does not."""
    before = pod_template(chart(MINIMAL), component)
    assert before != pod_template(chart({**MINIMAL, "settings": {"logLevel": "debug"}}), component)
    assert before == pod_template(chart({**MINIMAL, component: {"replicas": 9}}), component)


@pytest.mark.parametrize("component", ["api", "worker"])
@pytest.mark.parametrize("drain_seconds", [0, 25, 90.5])
def test_pods_are_given_time_to_drain(chart: Chart, component: str, drain_seconds: float) -> None:
    """The grace period lies above the drain time with some seconds to spare."""
    template = pod_template(chart({**MINIMAL, "settings": {"drainSeconds": drain_seconds}}), component)
    assert drain_seconds + 10 < template["spec"]["terminationGracePeriodSeconds"]


def test_the_api_is_replaced_without_a_gap(chart: Chart) -> None:
    """No API pod goes before its successor is ready."""
    strategy = only(chart(MINIMAL), "Deployment", "-api")["spec"]["strategy"]
    assert {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}} == strategy


def test_the_api_is_probed(chart: Chart) -> None:
    """Readiness asks about the stores, liveness only about the process, both on the port that the Service uses."""
    manifests = chart(MINIMAL)
    container = pod_template(manifests, "api")["spec"]["containers"][0]
    probes = {name: container[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    ready, live = {"path": "/health/ready", "port": "http"}, {"path": "/health/live", "port": "http"}
    assert {"startupProbe": live, "readinessProbe": ready, "livenessProbe": live} == probes
    assert {"http": 8000} == {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ["http"] == [port["targetPort"] for port in only(manifests, "Service")["spec"]["ports"]]
    assert "8000" == settings_of(manifests)["CARILLON_PORT"]


def test_each_process_has_its_command(chart: Chart) -> None:
    """One image, three commands."""
    commands = {container["name"]: container["args"] for container in containers(chart(MINIMAL))}
    assert {"api": ["api"], "worker": ["worker"], "migrate": ["migrate"]} == commands


@pytest.mark.parametrize("values", [MINIMAL, EVERYTHING])
def test_the_migration_needs_nothing_that_comes_later(chart: Chart, values: Values) -> None:
    """The hook runs before the release's objects exist: it refers to its own account and to no ConfigMap."""
    manifests = chart(values)
    hooks = {(item["kind"], item["metadata"]["name"]): item for item in manifests if is_hook(item)}
    pod = only(manifests, "Job")["spec"]["template"]["spec"]
    account = hooks["ServiceAccount", pod["serviceAccountName"]]
    assert "configMap" not in json.dumps(pod)
    assert int(account["metadata"]["annotations"]["helm.sh/hook-weight"]) < int(
        only(manifests, "Job")["metadata"]["annotations"]["helm.sh/hook-weight"]
    )
    assert {"pre-install,pre-upgrade"} == {item["metadata"]["annotations"]["helm.sh/hook"] for item in hooks.values()}


def test_the_migration_can_be_switched_off(chart: Chart) -> None:
    """Without migrations there is no hook at all."""
    assert [] == [item for item in chart({**MINIMAL, "migrations": {"enabled": False}}) if is_hook(item)]


def test_an_account_of_ones_own_is_used_everywhere(chart: Chart) -> None:
    """A given account serves all pods, and none is made."""
    manifests = chart({**MINIMAL, "serviceAccount": {"create": False, "name": "mine"}})
    assert ["mine"] * 3 == [template["spec"]["serviceAccountName"] for template in pod_templates(manifests)]
    assert "ServiceAccount" not in {item["kind"] for item in manifests}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (MINIMAL, f"carillon:{PROJECT['version']}"),
        (EVERYTHING, "team/carillon:1.2.3"),
        (BY_DIGEST, f"carillon@{DIGEST}"),
    ],
)
def test_one_image_by_version_tag_or_digest(chart: Chart, values: Values, expected: str) -> None:
    """All processes run the same image: this version's, a tagged one, or exactly one."""
    assert {expected} == {container["image"] for container in containers(chart(values))}


def test_placement_and_environment_reach_every_pod(chart: Chart) -> None:
    """Node selectors, tolerations, affinities, pull secrets and extra variables are passed on as given."""
    manifests = chart(EVERYTHING)
    for template in pod_templates(manifests):
        assert PLACEMENT == {name: template["spec"][name] for name in PLACEMENT}
        assert EVERYTHING["imagePullSecrets"] == template["spec"]["imagePullSecrets"]
    for container in containers(manifests):
        assert EVERYTHING["extraEnv"] == [environment(container)[name] for name in ("TZ", "CRON_RUN_TOKEN")]


@every_values
def test_every_container_has_resources(chart: Chart, values: Values) -> None:
    """Every container asks for CPU and memory, and has a limit to its memory."""
    for container in containers(chart(values)):
        assert {"cpu", "memory"} == set(container["resources"]["requests"])
        assert "memory" in container["resources"]["limits"]


def test_long_names_still_fit(chart: Chart) -> None:
    """The longest release name that helm takes gives names that fit into a label."""
    for manifest in chart(MINIMAL, release="r" * 53):
        assert len(manifest["metadata"]["name"]) <= LONGEST_LABEL


def test_the_chart_installs_this_version() -> None:
    """The chart's appVersion is the project's version."""
    assert PROJECT["version"] == yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]


def test_declared_files_are_applied_once_the_release_stands(chart: Chart) -> None:
    """By a Job on the ConfigMap that holds them, with the settings of all processes and no secret but the stores."""
    manifests = chart(DECLARED)
    job = only(manifests, "Job", "-apply")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert "post-install,post-upgrade,post-rollback" == job["metadata"]["annotations"]["helm.sh/hook"]
    assert ["apply", "--file=/declarations", "--owner=mia", "--prune"] == container["args"]
    files = only(manifests, "ConfigMap", "-declarations")
    assert {"shop.yaml": SHOP} == files["data"]
    (volume,) = (one for one in pod["volumes"] if "configMap" in one)
    (mount,) = (one for one in container["volumeMounts"] if one["name"] == volume["name"])
    assert (files["metadata"]["name"], "/declarations") == (volume["configMap"]["name"], mount["mountPath"])
    assert {"CARILLON_DATABASE_URL", "CARILLON_REDIS_URL"} == set(environment(container))
    assert [{"configMapRef": {"name": "carillon"}}] == container["envFrom"]
    assert PLACEMENT == {name: pod[name] for name in PLACEMENT}


@pytest.mark.parametrize("name", ["shop.txt", "../shop.yaml", ".hidden.yaml"])
def test_only_files_that_would_be_applied_may_be_declared(refusal: Callable[[Values], str], name: str) -> None:
    """A file that `carillon apply` passes over is a mistake."""
    assert name in refusal({**MINIMAL, "declarations": {"files": {name: SHOP}}})
