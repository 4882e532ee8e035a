"""The operator in the chart: off by default, with the least rights, and with the definitions of the code."""

import pytest
import yaml

from app.config import load_settings
from app.kubernetes.definitions import definition_files
from app.kubernetes.operator import carillon_server
from tests.chart.manifests import annotations, container, environment, kinds, only, pod_template
from tests.chart.rendering import Manifest, Renderer, Values
from tests.chart.test_network import rules
from tests.chart.values import DEFAULTS, MATRIX, OPERATOR

EVERYWHERE = MATRIX["operator-everywhere"]


def test_nothing_of_it_is_there_unless_asked_for(render: Renderer) -> None:
    """Neither the definitions nor a role."""
    assert not {"CustomResourceDefinition", "Role", "ClusterRole"} & kinds(render(DEFAULTS))


def test_the_definitions_are_those_of_the_code_and_stay(render: Renderer) -> None:
    """An upgrade brings new ones; uninstalling keeps them, as it would delete all objects."""
    made = {item["metadata"]["name"]: item for item in render(OPERATOR) if item["kind"] == "CustomResourceDefinition"}
    expected = [yaml.safe_load(text) for text in definition_files().values()]
    assert {one["metadata"]["name"]: one["spec"] for one in expected} == {
        name: item["spec"] for name, item in made.items()
    }
    assert {"keep"} == {annotations(item)["helm.sh/resource-policy"] for item in made.values()}
    without = {**OPERATOR, "operator": {**OPERATOR["operator"], "crds": False}}
    assert "CustomResourceDefinition" not in kinds(render(without))


def test_the_process_can_read_its_settings(render: Renderer) -> None:
    """It has the URL of the Service, the folder of tokens and a Lease of its own; no store and no admin's token."""
    operator = container(render(OPERATOR), "operator")
    variables = {name: entry["value"] for name, entry in environment(operator).items()}
    settings = load_settings(variables)
    server = carillon_server(settings)
    assert ("http://carillon.bells.svc:80", "/tokens", "c1.") == (server.url, server.tokens_dir, server.prefix)
    assert (("shop", "billing"), "carillon-operator") == (settings.watched_namespaces, settings.operator_lease)
    assert 60 == settings.operator_resync_seconds
    assert ["operator"] == operator["args"]


def test_tokens_are_mounted_where_they_are_read(render: Renderer) -> None:
    """The account's own under the usual path, though none is mounted by itself; those for Carillon by namespace."""
    for values, sources in (
        (OPERATOR, [{"secret": {"name": "tokens"}}]),
        (EVERYWHERE, [_projected("_default", audience="carillon")]),
    ):
        spec = pod_template(render(values), "operator")["spec"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        assert sources == volumes["operator-tokens"]["projected"]["sources"]
        own = volumes["operator-account"]["projected"]["sources"]
        assert _projected("token") == own[0]
        assert ["ca.crt", "namespace"] == [
            item["path"] for one in own[1:] for item in next(iter(one.values()))["items"]
        ]
        mounts = {mount["name"]: mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
        assert "/var/run/secrets/kubernetes.io/serviceaccount" == mounts["operator-account"]


def _projected(path: str, **more: str) -> Manifest:
    return {"serviceAccountToken": {"path": path, "expirationSeconds": 3600, **more}}


def test_a_way_to_carillon_is_required(render: Renderer) -> None:
    """Without tokens and without accepted service accounts nothing could be applied."""
    assert "operator.tokensSecret is required" in render.refusal({"operator": {"enabled": True}})


@pytest.mark.parametrize(
    ("values", "kind", "namespaces"),
    [(OPERATOR, "Role", ["billing", "shop"]), (EVERYWHERE, "ClusterRole", [None])],
    ids=["some", "all"],
)
def test_rights_are_the_least(render: Renderer, values: Values, kind: str, namespaces: list[str | None]) -> None:
    """It reads and patches the two kinds, in the watched namespaces alone, and has one Lease."""
    manifests = render(values)
    roles = [item for item in manifests if item["kind"] == kind and not item["metadata"]["name"].endswith("-lease")]
    assert namespaces == sorted((item["metadata"].get("namespace") for item in roles), key=str)
    for role in roles:
        granted = {(one, verb) for rule in role["rules"] for one in rule["resources"] for verb in rule["verbs"]}
        assert {
            *((plural, verb) for plural in ("schedules", "workflows") for verb in ("get", "list", "watch", "patch")),
            *((f"{plural}/status", "patch") for plural in ("schedules", "workflows")),
        } == granted
        assert {"carillon.dev"} == {group for rule in role["rules"] for group in rule["apiGroups"]}
    create, use = only(manifests, "Role", "-lease")["rules"]
    assert (["create"], ["get", "update"], ["carillon-operator"]) == (
        *(create["verbs"], use["verbs"]),
        use["resourceNames"],
    )
    bindings = [item for item in manifests if item["kind"].endswith("RoleBinding")]
    made = {(item["kind"], item["metadata"]["name"], item["metadata"].get("namespace")) for item in manifests}
    for binding in bindings:
        reference = binding["roleRef"]
        assert (reference["kind"], reference["name"], binding["metadata"].get("namespace")) in made
        (subject,) = binding["subjects"]
        assert ("ServiceAccount", subject["name"], subject["namespace"]) in made
        assert subject["name"] == pod_template(manifests, "operator")["spec"]["serviceAccountName"]


def test_it_reaches_the_api_and_the_cluster_alone(render: Renderer) -> None:
    """Names, Carillon's API and the API server; and the API lets it in where its clients are chosen."""
    manifests = render(OPERATOR)
    allowed = rules(manifests, "operator", "egress")
    assert {53, 8000, 443, 6443} == {port["port"] for rule in allowed for port in rule["ports"]}
    (to_api,) = [rule for rule in allowed if rule["ports"][0]["port"] == 8000]
    assert "api" == to_api["to"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
    clients = rules(manifests, "api", "ingress")[0]["from"]
    labels = pod_template(manifests, "operator")["metadata"]["labels"]
    assert any(one["podSelector"].get("matchLabels", {"none": ""}).items() <= labels.items() for one in clients), (
        "no rule of the API lets the operator in"
    )
