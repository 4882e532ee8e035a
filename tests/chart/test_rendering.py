"""What helm makes of the chart, and whether Kubernetes would take it."""

import re
import tomllib
from collections import Counter
from typing import Any

import pytest
import yaml

from tests.chart.kubernetes import own_schemas, problems
from tests.chart.manifests import api_service, kinds, only, pod_template
from tests.chart.rendering import CHART, ROOT, Manifest, Renderer, Values, objects
from tests.chart.values import BY_DIGEST, DEFAULTS, EVERYTHING, MATRIX, MINIMAL, every_values

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LONGEST_LABEL = 63
OUTSIDE = {"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


@every_values
def test_lints_strictly(render_by_each: Renderer, values: Values) -> None:
    """`helm lint --strict` finds nothing, in the notes neither."""
    answer = render_by_each.helm("lint", "--strict", str(CHART), *render_by_each.given(values))
    assert 0 == answer.returncode, answer.stdout + answer.stderr


@every_values
def test_both_helms_make_the_same_of_it(render: Renderer, render_by_each: Renderer, values: Values) -> None:
    """Helm 3 and helm 4 render the same objects."""
    assert in_order(render(values)) == in_order(render_by_each(values))


def in_order(manifests: list[Manifest]) -> list[Manifest]:
    """Objects by kind and name."""
    return sorted(manifests, key=lambda item: (item["kind"], item["metadata"]["name"]))


@every_values
def test_objects_fit_the_schemas_of_kubernetes(render: Renderer, values: Values) -> None:
    """Every object is valid, without a field too many, in every supported version of Kubernetes."""
    assert [] == [problem for manifest in render(values) for problem in problems(manifest)]


def test_every_kind_is_rendered(render: Renderer) -> None:
    """The sets of values bring out all that the chart can make, and every schema of our own is used."""
    rendered = set[str]().union(*(kinds(render(values)) for values in MATRIX.values()))
    made = "".join(path.read_text() for path in CHART.glob("templates/**/*.*"))
    assert set(re.findall(r"^kind: (\w+)$", made, re.MULTILINE)) == rendered
    assert {kind for _, kind in own_schemas()} - {"Cluster"} <= rendered


@pytest.mark.parametrize(
    "manifest",
    [
        {"apiVersion": "v1", "kind": "ConfigMap", "surprise": {}},
        {"apiVersion": "example.org/v1", "kind": "Surprise"},
        {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": {"surprise": 1}}}},
        {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "spec": {"surprise": 1}},
        {"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget"},
    ],
)
def test_the_validator_passes_nothing_silently(manifest: dict[str, Any]) -> None:
    """An unknown field at any depth, an unknown kind and a version that is gone are problems."""
    assert problems({"metadata": {"name": "x"}, **manifest})


def test_a_key_that_stands_twice_is_found() -> None:
    """What Kubernetes would refuse or half ignore is not read over here."""
    with pytest.raises(yaml.YAMLError, match="stands twice"):
        objects("metadata:\n  labels: {}\n  labels: {}\n")


def test_older_clusters_are_refused(render: Renderer) -> None:
    """A Kubernetes that nobody tests with is refused by name."""
    assert "1.28" in render.refusal(MINIMAL, "--kube-version", "1.28.0")


@every_values
def test_objects_have_their_place(render: Renderer, values: Values) -> None:
    """Every object is in the release's namespace, has the usual labels, and a name of its own among its kind.

    Rights in other namespaces are where they hold, and some kinds belong to no namespace.
    """
    manifests = render(values)
    elsewhere = {None, *values.get("operator", {}).get("namespaces", [])}
    namespaces = {(item["kind"], item["metadata"].get("namespace")) for item in manifests}
    assert {"bells"} == {namespace for kind, namespace in namespaces if kind not in OUTSIDE}
    assert set() == {namespace for kind, namespace in namespaces if kind in OUTSIDE} - elsewhere - {"bells"}
    assert {"carillon"} == {item["metadata"]["labels"]["app.kubernetes.io/part-of"] for item in manifests}
    names = Counter((item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]) for item in manifests)
    assert [] == [name for name, count in names.items() if count > 1]


@pytest.mark.parametrize("values", [MINIMAL, {**EVERYTHING, "fullnameOverride": ""}, MATRIX["operator-everywhere"]])
def test_long_names_still_fit(render: Renderer, values: Values) -> None:
    """The longest release name that helm takes gives names that fit into a label."""
    for manifest in render(values, release="r" * 53):
        assert len(manifest["metadata"]["name"]) <= LONGEST_LABEL


def test_the_chart_installs_this_version() -> None:
    """The chart's appVersion is the project's version."""
    assert PROJECT["version"] == yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (MINIMAL, f"carillon:{PROJECT['version']}"),
        (EVERYTHING, "team/carillon:1.2.3"),
        (BY_DIGEST, f"carillon@{BY_DIGEST['image']['digest']}"),
    ],
)
def test_one_image_by_version_tag_or_digest(render: Renderer, values: Values, expected: str) -> None:
    """All processes run the same image: this version's, a tagged one, or exactly one."""
    manifests = render(values)
    images = re.findall(r"'image': '([^']+)'", str(manifests))
    assert {expected} == set(images)
    assert expected == pod_template(manifests, "api")["spec"]["containers"][0]["image"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (DEFAULTS, ["port-forward service/carillon 8000:80", "get secret carillon", '{{index .data "admin-token"']),
        (EVERYTHING, ["https://bells.example.org/api/v1", "The chart created the Secret", "service/bells 8000:8080"]),
        ({"migrations": {"enabled": False}}, ["the pods wait until you run `carillon migrate`"]),
        ({"api": {"replicas": 1}}, ["Set api.replicas to 2"]),
    ],
)
def test_the_notes_say_what_to_do_next(render: Renderer, values: Values, expected: list[str]) -> None:
    """After an install helm says how to reach Carillon, where the token is, and what is left to do."""
    options = ("--dry-run=client", "--namespace", "bells", *render.given(values))
    answer = render.helm("install", "carillon", str(CHART), *options)
    notes = answer.stdout.partition("NOTES:")[2]
    assert [] == [words for words in expected if words not in notes], answer.stderr


def test_ingress_leads_to_the_service(render: Renderer) -> None:
    """Every host and path leads to the Service; what needs no token is not among the paths."""
    manifests = render(EVERYTHING)
    spec = only(manifests, "Ingress")["spec"]
    paths = [path for rule in spec["rules"] for path in rule["http"]["paths"]]
    assert EVERYTHING["ingress"]["hosts"] == [rule["host"] for rule in spec["rules"]]
    assert ["/api", "/schema"] * 2 == [path["path"] for path in paths]
    assert [{"name": "bells", "port": {"name": "http"}}] * 4 == [path["backend"]["service"] for path in paths]
    assert ("bells", "http") == (
        api_service(manifests)["metadata"]["name"],
        api_service(manifests)["spec"]["ports"][0]["name"],
    )


def test_ingress_takes_any_host(render: Renderer) -> None:
    """Without host names there is one rule for all."""
    (rule,) = only(render({"ingress": {"enabled": True}}), "Ingress")["spec"]["rules"]
    assert "host" not in rule


def test_the_route_leads_to_the_service(render: Renderer) -> None:
    """The HTTPRoute belongs to its Gateway and sends the API's paths to the Service's port."""
    spec = only(render(EVERYTHING), "HTTPRoute")["spec"]
    (rule,) = spec["rules"]
    assert EVERYTHING["httpRoute"]["parentRefs"] == spec["parentRefs"]
    assert EVERYTHING["httpRoute"]["hostnames"] == spec["hostnames"]
    assert ["/api", "/schema"] == [match["path"]["value"] for match in rule["matches"]]
    assert [{"name": "bells", "port": 8080}] == rule["backendRefs"]


def test_a_route_needs_a_gateway(render: Renderer) -> None:
    """A route that belongs to nobody is refused."""
    assert "httpRoute.parentRefs is required" in render.refusal({"httpRoute": {"enabled": True}})


def test_little_is_made_by_default(render: Renderer) -> None:
    """What needs an operator, a controller or a decision is off until asked for."""
    usual = {"ConfigMap", "Deployment", "Job", "Pod", "PodDisruptionBudget", "Service", "ServiceAccount"}
    assert usual == kinds(render(DEFAULTS))
