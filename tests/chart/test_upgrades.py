"""What stays the same from one release to the next, because Kubernetes demands it."""

import shutil
from pathlib import Path

import pytest
import yaml

from tests.chart.manifests import kept
from tests.chart.rendering import CHART, Manifest, Renderer, Values, objects
from tests.chart.values import DEFAULTS, EVERYTHING, HIGHLY_AVAILABLE, KEDA, LEAST, MATRIX, MINIMAL

# Fields of the kinds that we keep which Kubernetes lets nobody change, or only in some ways.
IMMUTABLE = {
    "Deployment": ("selector",),
    "Service": ("clusterIP", "clusterIPs", "ipFamilies", "loadBalancerClass"),
}
# Kinds that have no such fields, or none but their names.
MUTABLE = {
    *("ConfigMap", "CronJob", "HorizontalPodAutoscaler", "HTTPRoute", "Ingress", "NetworkPolicy"),
    *("PodMonitor", "PrometheusRule", "ScaledObject", "Secret", "ServiceAccount", "ServiceMonitor"),
    *("PodDisruptionBudget", "TriggerAuthentication", "CustomResourceDefinition"),
    # The role of a binding follows from its name.
    *("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"),
}


def fixed(manifests: list[Manifest]) -> dict[tuple[str, str], Manifest]:
    """What may not change, for each object that an upgrade changes in place."""
    return {
        (item["kind"], item["metadata"]["name"]): {name: item["spec"].get(name) for name in IMMUTABLE[item["kind"]]}
        for item in kept(manifests)
        if item["kind"] in IMMUTABLE
    }


def test_every_kept_kind_is_accounted_for(render: Renderer) -> None:
    """No Job or other unchangeable object is upgraded in place, and nothing is marked immutable."""
    for values in MATRIX.values():
        manifests = kept(render(values))
        assert {item["kind"] for item in manifests} <= MUTABLE | set(IMMUTABLE)
        assert [] == [item for item in manifests if item.get("immutable")]


@pytest.mark.parametrize("values", [HIGHLY_AVAILABLE, KEDA, LEAST, {**EVERYTHING, "fullnameOverride": ""}])
def test_other_values_keep_immutable_fields(render: Renderer, values: Values) -> None:
    """From the defaults to any other values nothing changes that must not; what is new may be as it likes."""
    before = fixed(render(DEFAULTS))
    assert {("Deployment", "carillon-api"), ("Deployment", "carillon-worker"), ("Service", "carillon")} == set(before)
    after = fixed(render(values))
    assert before == {name: after.get(name) for name in before}


def test_another_version_keeps_immutable_fields(render: Renderer, tmp_path: Path) -> None:
    """The next release of the chart and of Carillon has the same selectors, on the pods too."""
    chart = tmp_path / "carillon"
    shutil.copytree(CHART, chart)
    text = (chart / "Chart.yaml").read_text()
    (chart / "Chart.yaml").write_text(text.replace(yaml.safe_load(text)["appVersion"], "9.8.7"))
    options = ("--namespace", "bells", "--is-upgrade", *render.given(MINIMAL))
    answer = render.helm("template", "carillon", str(chart), *options)
    after = objects(answer.stdout)
    assert "carillon:9.8.7" in answer.stdout
    assert fixed(render(MINIMAL)) == fixed(after)
    labels = [item["spec"]["template"]["metadata"]["labels"] for item in after if item["kind"] == "Deployment"]
    assert [] == [label for label in labels if "9.8.7" in str(label)]


def test_selectors_are_what_they_have_always_been(render: Renderer) -> None:
    """Installed releases have these: another one could not be upgraded to."""
    for component in ("api", "worker"):
        expected = {
            "app.kubernetes.io/name": "carillon",
            "app.kubernetes.io/instance": "carillon",
            "app.kubernetes.io/component": component,
        }
        selector = fixed(render(DEFAULTS))["Deployment", f"carillon-{component}"]["selector"]
        assert {"matchLabels": expected} == selector


def test_names_do_not_depend_on_the_version(render: Renderer) -> None:
    """An upgrade finds the objects that it changes, whatever else is switched on."""
    names = {(item["kind"], item["metadata"]["name"]) for item in kept(render(DEFAULTS))}
    assert names <= {(item["kind"], item["metadata"]["name"]) for item in kept(render(HIGHLY_AVAILABLE))}
