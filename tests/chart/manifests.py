"""Finding one's way in rendered objects."""

import json
from collections.abc import Iterator

from tests.chart.rendering import Manifest

HOOK = "helm.sh/hook"
WEIGHT = "helm.sh/hook-weight"
COMPONENT = "app.kubernetes.io/component"


def only(manifests: list[Manifest], kind: str, name: str = "") -> Manifest:
    """The one object of this kind, or the one with this end of its name."""
    found = [item for item in manifests if item["kind"] == kind and item["metadata"]["name"].endswith(name)]
    assert 1 == len(found), f"{len(found)} of {kind} *{name}"
    return found[0]


def api_service(manifests: list[Manifest]) -> Manifest:
    """The Service that clients of the API use."""
    services = [item for item in manifests if item["kind"] == "Service"]
    return next(item for item in services if item["metadata"]["labels"][COMPONENT] == "api")


def kinds(manifests: list[Manifest]) -> set[str]:
    """Every kind that is there."""
    return {manifest["kind"] for manifest in manifests}


def settings_of(manifests: list[Manifest]) -> dict[str, str]:
    """The variables of the ConfigMap that all processes read."""
    (data,) = [item["data"] for item in manifests if item["kind"] == "ConfigMap" and "CARILLON_PORT" in item["data"]]
    return dict(data)


def pods(manifests: list[Manifest]) -> list[Manifest]:
    """Every pod and every pod template: metadata and spec."""
    specs = [item.get("spec", {}).get("jobTemplate", item).get("spec", {}) for item in manifests]
    templates = [spec["template"] for spec in specs if "template" in spec]
    return templates + [item for item in manifests if item["kind"] == "Pod"]


def pod_template(manifests: list[Manifest], component: str) -> Manifest:
    """The pod template of the Deployment of this component."""
    template: Manifest = only(manifests, "Deployment", f"-{component}")["spec"]["template"]
    return template


def containers(manifests: list[Manifest]) -> Iterator[Manifest]:
    """Every container of every pod."""
    for pod in pods(manifests):
        yield from pod["spec"].get("initContainers", [])
        yield from pod["spec"]["containers"]


def container(manifests: list[Manifest], name: str) -> Manifest:
    """The container of this name."""
    return next(item for item in containers(manifests) if item["name"] == name)


def environment(container: Manifest) -> dict[str, Manifest]:
    """A container's own variables by name, each of which stands there once."""
    variables = {entry["name"]: entry for entry in container["env"]}
    assert len(variables) == len(container["env"]), f"a variable of {container['name']} stands there twice"
    return variables


def annotations(manifest: Manifest) -> dict[str, str]:
    """An object's annotations."""
    return dict(manifest["metadata"].get("annotations", {}))


def hooks(manifests: list[Manifest], event: str) -> list[Manifest]:
    """The objects that helm makes for this event, in its order."""
    found = [item for item in manifests if event in annotations(item).get(HOOK, "").split(",")]
    return sorted(found, key=lambda item: int(annotations(item)[WEIGHT]))


def kept(manifests: list[Manifest]) -> list[Manifest]:
    """The objects that an upgrade changes in place: all but the hooks."""
    return [item for item in manifests if HOOK not in annotations(item)]


def chart_names(manifests: list[Manifest]) -> set[str]:
    """Every environment variable that is set anywhere."""
    return {name for item in containers(manifests) for name in environment(item)} | set(settings_of(manifests))


def as_text(manifests: list[Manifest]) -> str:
    """Everything, to look for what must not be there."""
    return json.dumps(manifests)
