"""What helm looks for in the cluster, here in a pretended one: tokens that stay the same, and missing Secrets."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.manifests import kept
from tests.chart.rendering import Renderer

GIVEN = {"create": True, "databaseUrl": "postgresql://db/new", "redisUrl": "redis://new"}
THERE = {"database-url": "postgresql://db/old", "redis-url": "redis://old", "admin-token": "kept", "cron": "unasked"}
KINDS = {
    "v1": ("ConfigMap", "Pod", "Secret", "Service", "ServiceAccount"),
    "apps/v1": ("Deployment",),
    "batch/v1": ("Job",),
    "policy/v1": ("PodDisruptionBudget",),
}


def resources(version: str) -> dict[str, Any]:
    """The kinds of a version of an API, as a cluster lists them."""
    listed = [
        {"name": f"{kind.lower()}s", "singularName": "", "namespaced": True, "kind": kind, "verbs": ["get"]}
        for kind in KINDS[version]
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": listed}


def group(version: str) -> dict[str, Any]:
    """A group with its one version."""
    versions = {"groupVersion": version, "version": "v1"}
    return {"name": version.partition("/")[0], "versions": [versions], "preferredVersion": versions}


GROUPS = [version for version in KINDS if "/" in version]
ANSWERS: dict[str, Any] = {
    "/version": {"major": "1", "minor": "33", "gitVersion": "v1.33.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/api/v1": resources("v1"),
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group(version) for version in GROUPS]},
    **{f"/apis/{version}": resources(version) for version in GROUPS},
    "/api/v1/namespaces/bells/configmaps/kube-root-ca.crt": {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "kube-root-ca.crt", "namespace": "bells"},
    },
    "/api/v1/namespaces/bells/secrets/carillon": {
        "kind": "Secret",
        "apiVersion": "v1",
        "metadata": {"name": "carillon", "namespace": "bells"},
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in THERE.items()},
    },
}


class PretendedCluster(BaseHTTPRequestHandler):
    """As much of Kubernetes as a look for a Secret needs."""

    def do_GET(self) -> None:
        """What there is, or that it is not there."""
        answer = ANSWERS.get(self.path.partition("?")[0])
        missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        body = json.dumps(answer or missing).encode()
        self.send_response(200 if answer else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig that leads to the pretended cluster."""
    with ThreadingHTTPServer(("127.0.0.1", 0), PretendedCluster) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            "users": [{"name": "me", "user": {}}],
            "current-context": "here",
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
        yield tmp_path / "kubeconfig"
        server.shutdown()


def test_tokens_are_kept(render_by_each: Renderer, cluster: Path) -> None:
    """What was made up stays, what is given is taken, what was missing is made up, what is unasked goes."""
    options = ("--dry-run=server", "--disable-openapi-validation", "--is-upgrade", "--kubeconfig", str(cluster))
    manifests = kept(render_by_each({"secret": GIVEN}, *options))
    data = next(item["data"] for item in manifests if item["kind"] == "Secret")
    held = {key: base64.b64decode(text).decode() for key, text in data.items()}
    assert "kept" == held["admin-token"]
    assert ("postgresql://db/new", "redis://new") == (held["database-url"], held["redis-url"])
    assert held["signing-secret"].startswith("whsec_")
    assert {"database-url", "redis-url", "admin-token", "signing-secret"} == set(held)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"existingSecret": "stores"}, ['The Secret "stores" does not exist in the namespace "bells"', "admin-token"]),
        ({"secretNames": {"redisUrl": "cache"}}, ['The Secret "cache" does not exist', "secretNames.redisUrl"]),
        (
            {},
            ['The Secret "carillon" in the namespace "bells" has no key "signing-secret"', "secretKeys.signingSecret"],
        ),
    ],
)
def test_a_missing_secret_is_said_at_once(
    render_by_each: Renderer, cluster: Path, values: dict[str, Any], words: list[str]
) -> None:
    """By its name, its namespace and its key, instead of a Job that cannot start; the check can be left out."""
    options = ("--dry-run=server", "--disable-openapi-validation", "--namespace", "bells", "--kubeconfig", str(cluster))
    said = " ".join(render_by_each.refusal(values, *options).split())
    assert [] == [part for part in words if part not in said], said
    assert render_by_each({**values, "checkSecrets": False}, *options)


def test_complete_secrets_pass(render_by_each: Renderer, cluster: Path) -> None:
    """Every key is there, or is not asked for."""
    options = ("--dry-run=server", "--disable-openapi-validation", "--kubeconfig", str(cluster))
    assert render_by_each({"secretKeys": {"signingSecret": ""}}, *options)
