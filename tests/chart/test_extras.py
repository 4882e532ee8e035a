"""What platforms add to a release: labels, sidecars, strategies, address families, objects, registries."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.kubernetes import problems
from tests.chart.manifests import api_service, container, containers, only, pod_template, pods
from tests.chart.rendering import CHART, Manifest, Renderer, Values, objects
from tests.chart.values import DEFAULTS, DOCUMENT, MINIMAL, MONITORING

SIDECAR: Manifest = {"name": "proxy", "image": "proxy:1", "resources": {"limits": {"memory": "32Mi"}}}
WARMUP: Manifest = {"name": "warm-up", "image": "tool:1"}
RULES = [{"action": "replace", "targetLabel": "cluster", "replacement": "c"}]
EXTRAS: Values = {
    **MINIMAL,
    "enabled": True,
    "profile": "small",
    "commonLabels": {"example.org/team": "bells", "app.kubernetes.io/name": "ignored"},
    "commonAnnotations": {"example.org/cost": "42"},
    "runtimeClassName": "gvisor",
    "dnsPolicy": "ClusterFirst",
    "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["db.internal"]}],
    "image": {"registry": "registry.example.org:5000", "repository": "team/carillon", "tag": "1"},
    "api": {"initContainers": [WARMUP], "extraContainers": [SIDECAR], "strategy": {"type": "Recreate"}},
    "worker": {"extraContainers": [SIDECAR], "strategy": {"rollingUpdate": {"maxSurge": "50%"}}},
    "service": {
        "type": "LoadBalancer",
        "ipFamilyPolicy": "PreferDualStack",
        "ipFamilies": ["IPv6", "IPv4"],
        "loadBalancerClass": "internal",
        "loadBalancerSourceRanges": ["10.0.0.0/8"],
        "externalTrafficPolicy": "Local",
        "nodePort": 30080,
    },
    "schedules": {"billing": DOCUMENT},
    "secret": {"create": True, "databaseUrl": "postgresql://db/x", "redisUrl": "redis://r"},
    "ingress": {"enabled": True},
    "networkPolicy": {"enabled": True},
    "monitoring": {
        **MONITORING,
        "serviceMonitor": {"enabled": True, "scrapeTimeout": "5s", "relabelings": RULES, "metricRelabelings": RULES},
        "podMonitor": {"enabled": True, "scrapeTimeout": "5s", "relabelings": RULES},
    },
    "extraObjects": [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "{{ .Release.Name }}-more", "namespace": "{{ .Release.Namespace }}"},
        },
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: as-text\n",
    ],
}


def own(manifests: list[Manifest]) -> list[Manifest]:
    """The objects of the chart, without the additional ones."""
    return [
        item for item in manifests if item["metadata"]["name"].startswith("carillon") and "labels" in item["metadata"]
    ]


def test_both_helms_take_it_and_kubernetes_too(render_by_each: Renderer) -> None:
    """Every object is valid in every supported version."""
    manifests = render_by_each(EXTRAS)
    assert [] == [problem for manifest in manifests for problem in problems(manifest)]


def test_all_objects_and_pods_have_the_common_labels(render: Renderer) -> None:
    """Labels and annotations are added; those of the chart stay as they are, and selectors do not change."""
    manifests = render(EXTRAS)
    for item in [*own(manifests), *pods(manifests)]:
        assert "bells" == item["metadata"]["labels"]["example.org/team"]
        assert "carillon" == item["metadata"]["labels"]["app.kubernetes.io/name"]
        assert "42" == item["metadata"]["annotations"]["example.org/cost"]
    for component in ("api", "worker"):
        plain, extended = (only(render(values), "Deployment", f"-{component}") for values in (DEFAULTS, EXTRAS))
        assert plain["spec"]["selector"] == extended["spec"]["selector"]


def test_objects_keep_their_own_annotations(render: Renderer) -> None:
    """Hooks are still hooks, and the Secret outlives the release."""
    manifests = render(EXTRAS)
    assert "pre-install,pre-upgrade" == only(manifests, "Job", "-migrate")["metadata"]["annotations"]["helm.sh/hook"]
    kept = [item for item in manifests if item["kind"] == "Secret" and item["metadata"]["name"] == "carillon"]
    assert ["keep"] == [item["metadata"]["annotations"]["helm.sh/resource-policy"] for item in kept]


def test_containers_of_the_platform_run_beside_ours(render: Renderer) -> None:
    """Sidecars and init containers are passed on as given."""
    manifests = render(EXTRAS)
    api = pod_template(manifests, "api")["spec"]
    assert ["api", "proxy"] == [item["name"] for item in api["containers"]]
    assert SIDECAR == api["containers"][1]
    assert [WARMUP] == api["initContainers"]
    waiting = pod_template(render({**EXTRAS, "migrations": {"enabled": False}}), "api")["spec"]["initContainers"]
    assert ["warm-up", "wait-for-migrations"] == [item["name"] for item in waiting]


def test_pods_follow_the_platform(render: Renderer) -> None:
    """Runtime class, DNS and hosts reach every pod; strategies each Deployment."""
    manifests = render(EXTRAS)
    for pod in pods(manifests):
        assert "gvisor" == pod["spec"]["runtimeClassName"]
        assert ("ClusterFirst", EXTRAS["dnsConfig"]) == (pod["spec"]["dnsPolicy"], pod["spec"]["dnsConfig"])
        assert EXTRAS["hostAliases"] == pod["spec"]["hostAliases"]
    assert {"type": "Recreate"} == only(manifests, "Deployment", "-api")["spec"]["strategy"]
    rolling = {"maxSurge": "50%", "maxUnavailable": 0}
    assert rolling == only(manifests, "Deployment", "-worker")["spec"]["strategy"]["rollingUpdate"]


def test_images_come_from_the_registry(render: Renderer) -> None:
    """The host of a registry is put before the name, with a tag or a digest."""
    assert "registry.example.org:5000/team/carillon:1" == container(render(EXTRAS), "worker")["image"]
    assert "carillon@sha256:" in container(render({"image": {"digest": f"sha256:{'a' * 64}"}}), "worker")["image"]


def test_services_have_the_fields_of_load_balancers(render: Renderer) -> None:
    """Address families are those of the Service for metrics too; without values the cluster decides."""
    manifests = render(EXTRAS)
    spec = api_service(manifests)["spec"]
    names = ("ipFamilyPolicy", "ipFamilies", "loadBalancerClass", "loadBalancerSourceRanges", "externalTrafficPolicy")
    assert {name: EXTRAS["service"][name] for name in names} == {name: spec[name] for name in names}
    assert [30080] == [port["nodePort"] for port in spec["ports"]]
    assert "PreferDualStack" == only(manifests, "Service", "-api-metrics")["spec"]["ipFamilyPolicy"]
    assert {"type", "selector", "ports"} == set(api_service(render(DEFAULTS))["spec"])


@pytest.mark.parametrize(
    ("service", "named"),
    [
        ({"externalTrafficPolicy": "Local"}, "service.externalTrafficPolicy"),
        ({"nodePort": 30080}, "service.nodePort"),
        ({"type": "NodePort", "loadBalancerClass": "internal"}, "service.loadBalancerClass"),
        ({"type": "NodePort", "loadBalancerSourceRanges": ["10.0.0.0/8"]}, "service.loadBalancerSourceRanges"),
    ],
)
def test_fields_that_the_type_of_the_service_lacks_are_refused(render: Renderer, service: Values, named: str) -> None:
    """Kubernetes would refuse the Service after the migration, in the middle of an upgrade."""
    assert named in render.refusal({"service": service})


def test_scrapes_can_be_relabelled(render: Renderer) -> None:
    """Time limits and rules reach both monitors."""
    manifests = render(EXTRAS)
    (endpoint,) = only(manifests, "ServiceMonitor")["spec"]["endpoints"]
    assert ("5s", RULES, RULES) == (endpoint["scrapeTimeout"], endpoint["relabelings"], endpoint["metricRelabelings"])
    (endpoint,) = only(manifests, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert ("5s", RULES) == (endpoint["scrapeTimeout"], endpoint["relabelings"])


def test_more_objects_can_be_given(render: Renderer) -> None:
    """As objects and as texts; templates in them are filled in."""
    names = {item["metadata"]["name"] for item in render(EXTRAS) if item["kind"] == "ConfigMap"}
    assert {"carillon-more", "as-text"} <= names


def test_the_small_profile_asks_for_little(render: Renderer) -> None:
    """Four idle pods use 336 MiB and little CPU: they ask for about as much, and single values can be changed."""
    asked = [item["resources"]["requests"] for item in containers(render({"profile": "small"}))]
    assert {("10m", "96Mi")} == {(item["cpu"], item["memory"]) for item in asked}
    changed = container(render({"profile": "small", "api": {"resources": {"requests": {"cpu": "1"}}}}), "api")
    assert {"requests": {"cpu": "1", "memory": "96Mi"}, "limits": {"memory": "384Mi"}} == changed["resources"]
    assert {"cpu": "200m", "memory": "256Mi"} == container(render(DEFAULTS), "worker")["resources"]["requests"]


@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_parent_chart_switches_it_on_and_off(render_by_each: Renderer, tmp_path: Path, is_enabled: bool) -> None:
    """By the condition of its dependency: everything, or nothing at all."""
    parent = tmp_path / "parent"
    shutil.copytree(CHART, parent / "charts" / "carillon")
    dependency: dict[str, Any] = {"name": "carillon", "version": "*", "condition": "carillon.enabled"}
    described = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [dependency]}
    (parent / "Chart.yaml").write_text(yaml.safe_dump(described))
    values = render_by_each.given({"carillon": {"enabled": is_enabled}})
    answer = render_by_each.helm("template", "umbrella", str(parent), *values)
    assert 0 == answer.returncode, answer.stderr
    assert is_enabled == bool(objects(answer.stdout))


def test_it_cannot_be_switched_off_alone(render: Renderer) -> None:
    """Without a parent chart the value would do nothing, so it is refused."""
    assert "enabled is false" in render.refusal({"enabled": False})


def test_the_chart_says_who_and_where() -> None:
    """Registries of charts show these fields."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert {"home", "sources", "maintainers", "icon", "kubeVersion", "annotations"} <= set(chart)
    assert ["Carillon team"] == [maintainer["name"] for maintainer in chart["maintainers"]]
    images = yaml.safe_load(chart["annotations"]["artifacthub.io/images"])
    assert [f"carillon:{chart['appVersion']}"] == [image["image"] for image in images]
