"""What the pods may not do, and what may not be seen."""

import base64
import json

import pytest

from app.config import FILE_SUFFIX, env_name
from app.config import SECRETS as SECRET_SETTINGS
from tests.chart.manifests import annotations, as_text, containers, environment, hooks, kept, kinds, pods, settings_of
from tests.chart.rendering import Manifest, Renderer, Values
from tests.chart.values import CREATED, DEFAULTS, EVERYTHING, EXISTING, LEAST, MINIMAL, SECRETS, every_values

VARIABLES = {
    "CARILLON_DATABASE_URL": "databaseUrl",
    "CARILLON_MIGRATION_DATABASE_URL": "migrationDatabaseUrl",
    "CARILLON_REDIS_URL": "redisUrl",
    "CARILLON_ADMIN_TOKEN": "adminToken",
    "CARILLON_SIGNING_SECRET": "signingSecret",
    "CRON_RUN_TOKEN": "cronRunToken",
    "CARILLON_OIDC_CLIENT_SECRET": "oidcClientSecret",
}
# Of the restricted Pod Security Standard.
ALLOWED_VOLUMES = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"),
}


@every_values
def test_pods_meet_the_restricted_standard(render: Renderer, values: Values) -> None:
    """No pod runs as root, shares the node's namespaces, mounts a part of the node or carries a token."""
    for spec in (pod["spec"] for pod in pods(render(values))):
        assert True is spec["securityContext"]["runAsNonRoot"]
        assert {"type": "RuntimeDefault"} == spec["securityContext"]["seccompProfile"]
        assert False is spec["automountServiceAccountToken"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert {kind for volume in spec["volumes"] for kind in volume} - {"name"} <= ALLOWED_VOLUMES


@every_values
def test_containers_meet_the_restricted_standard(render: Renderer, values: Values) -> None:
    """Every container drops all, gains nothing, opens no port of the node, and can write to /tmp alone."""
    expected = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    for container in containers(render(values)):
        assert expected == container["securityContext"]
        assert [] == [port for port in container.get("ports", []) if "hostPort" in port or port["containerPort"] < 1024]
        assert ["/tmp"] == [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")]


@pytest.mark.parametrize(("values", "expected"), [(DEFAULTS, 65532), (EVERYTHING, 1000650000), (LEAST, None)])
def test_ids_are_ours_given_or_left_to_the_platform(render: Renderer, values: Values, expected: int | None) -> None:
    """Pods run under the image's numeric id, under another one, or under what the platform assigns."""
    for pod in pods(render(values)):
        context = pod["spec"]["securityContext"]
        # As text: Kubernetes refuses 1.00065e+09, which Python finds equal.
        assert [str(expected)] * 2 == [str(context.get(name)) for name in ("runAsUser", "runAsGroup")]


@every_values
def test_service_accounts_mount_no_token(render: Renderer, values: Values) -> None:
    """The accounts that the chart makes mount no token either."""
    for account in (item for item in render(values) if item["kind"] == "ServiceAccount"):
        assert False is account["automountServiceAccountToken"]


@every_values
def test_service_links_do_not_shadow_settings(render: Renderer, values: Values) -> None:
    """A Service named carillon does not put tcp://... into CARILLON_PORT."""
    assert {False} == {pod["spec"]["enableServiceLinks"] for pod in pods(render(values))}


@every_values
def test_secret_variables_are_references(render: Renderer, values: Values) -> None:
    """No secret setting has its value in the open, be it in a ConfigMap or in a pod."""
    manifests = render(values)
    assert set() == set(VARIABLES) & set(settings_of(manifests))
    for variables in map(environment, containers(manifests)):
        for name in set(VARIABLES) & set(variables):
            assert {"name", "valueFrom"} == set(variables[name])


@pytest.mark.parametrize("values", [EVERYTHING, CREATED])
def test_no_secret_stands_outside_a_secret(render: Renderer, values: Values) -> None:
    """Values that were given for a Secret are found in Secrets alone, plain or encoded."""
    elsewhere = as_text([item for item in render(values) if item["kind"] != "Secret"])
    assert [] == [word for word in SECRETS.values() if word in elsewhere or encoded(word) in elsewhere]


def test_secrets_come_from_where_they_are_said_to_be(render: Renderer) -> None:
    """Each variable names the key, and the Secret where it is not the usual one."""
    by_name = containers_by_name(render(EXISTING))
    variables = {**environment(by_name["migrate"]), **environment(by_name["api"])}
    for name, value in VARIABLES.items():
        secret = EXISTING["secretNames"].get(value, "stores")
        reference = {"name": secret, "key": EXISTING["secretKeys"][value]}
        assert {"secretKeyRef": reference} == variables[name]["valueFrom"]


def containers_by_name(manifests: list[Manifest]) -> dict[str, Manifest]:
    """Every container by its name."""
    return {container["name"]: container for container in containers(manifests)}


def test_each_process_gets_the_secrets_it_needs(render: Renderer) -> None:
    """The admin's token goes to the API and its test alone, and the migration sees nothing but the database."""
    by_name = containers_by_name(render(EVERYTHING))
    given = {name: set(VARIABLES) & set(environment(item)) for name, item in by_name.items()}
    tokens = {"CARILLON_ADMIN_TOKEN", "CRON_RUN_TOKEN", "CARILLON_OIDC_CLIENT_SECRET"}
    databases = {"CARILLON_DATABASE_URL", "CARILLON_MIGRATION_DATABASE_URL"}
    runtime = set(VARIABLES) - {"CARILLON_MIGRATION_DATABASE_URL"}
    assert {
        "api": runtime,
        "worker": runtime - tokens,
        "apply": runtime - tokens,
        "migrate": databases,
        "partitions": databases,
        "check": {"CARILLON_DATABASE_URL"},
        "test": {"CARILLON_ADMIN_TOKEN"},
    } == given


def test_an_empty_key_leaves_a_secret_out(render: Renderer) -> None:
    """Without a key for it neither the admin's token nor the signing secret is asked of the Secret."""
    asked = {name for item in containers(render(LEAST)) for name in environment(item)} & set(VARIABLES)
    assert {"CARILLON_DATABASE_URL", "CARILLON_REDIS_URL"} == asked


@pytest.mark.parametrize("values", [DEFAULTS, MINIMAL, EXISTING, LEAST])
def test_no_secret_is_made_unasked(render: Renderer, values: Values) -> None:
    """A Secret of one's own is used as it is."""
    assert "Secret" not in kinds(render(values))


def test_a_secret_can_be_a_file(render: Renderer) -> None:
    """Each process is told the path instead of the value, by a variable that the code reads; no Secret is asked for."""
    files = {name: f"/vault/{name}" for name in SECRETS}
    mount = [{"name": "vault", "mountPath": "/vault", "readOnly": True}]
    values = {"secretFiles": files, "secretKeys": EXISTING["secretKeys"], "extraVolumeMounts": mount}
    by_name = containers_by_name(render({**values, "secret": {"create": True}, "schedules": {"a": {"namespace": "a"}}}))
    expected = {f"{variable}_FILE": files[name] for variable, name in VARIABLES.items()}
    variables = {**environment(by_name["api"]), **environment(by_name["migrate"])}
    assert expected.items() <= {name: item.get("value") for name, item in variables.items()}.items()
    known = {env_name(name) + FILE_SUFFIX for name in SECRET_SETTINGS}
    for item in by_name.values():
        assert [] == [name for name, entry in environment(item).items() if "valueFrom" in entry]
        assert set() == {name for name in environment(item) if name.endswith(FILE_SUFFIX)} - known
    assert "CARILLON_DATABASE_URL_FILE" in environment(by_name["migrate"])


def test_a_secret_is_made_when_asked_for(render: Renderer) -> None:
    """It holds what was given, under the keys that all processes ask for, and outlives the release."""
    manifests = render(CREATED)
    secret = next(item for item in kept(manifests) if item["kind"] == "Secret")
    keys = {"databaseUrl": "database-url", "redisUrl": "redis-url", "adminToken": "admin-token"}
    keys |= {
        "migrationDatabaseUrl": "migration-database-url",
        "signingSecret": "signing-secret",
        "cronRunToken": "cron-run-token",
        "oidcClientSecret": "oidc-client-secret",
    }
    assert {keys[name]: encoded(value) for name, value in SECRETS.items()} == secret["data"]
    assert "keep" == annotations(secret)["helm.sh/resource-policy"]
    assert {"carillon"} == {
        entry["valueFrom"]["secretKeyRef"]["name"]
        for entry in environment(containers_by_name(manifests)["api"]).values()
        if entry["name"] in VARIABLES
    }


def test_the_migration_has_a_secret_before_the_release_has(render: Renderer) -> None:
    """Made by the chart, the Secret comes after the hooks; so the hook brings the database URLs, and nothing else."""
    manifests = render(CREATED)
    secret = next(item for item in hooks(manifests, "pre-install") if item["kind"] == "Secret")
    reference = environment(containers_by_name(manifests)["migrate"])["CARILLON_DATABASE_URL"]["valueFrom"]
    assert {
        "database-url": encoded(SECRETS["databaseUrl"]),
        "migration-database-url": encoded(SECRETS["migrationDatabaseUrl"]),
    } == secret["data"]
    assert {"name": secret["metadata"]["name"], "key": "database-url"} == reference["secretKeyRef"]


def test_tokens_are_made_up_where_none_are_given(render: Renderer) -> None:
    """They are long, differ between installs, and the signing secret has the form of one."""
    given = {"create": True, "databaseUrl": "postgresql://db/x", "redisUrl": "redis://r"}
    first, second = (plain(render({"secret": given}, *options)) for options in ((), ("--is-upgrade",)))
    assert {"database-url", "redis-url", "admin-token", "signing-secret"} == set(first)
    assert 40 == len(first["admin-token"])
    assert 32 == len(base64.b64decode(first["signing-secret"].removeprefix("whsec_")))
    assert first["admin-token"] != second["admin-token"]
    assert first["signing-secret"] != second["signing-secret"]


@pytest.mark.parametrize("missing", ["databaseUrl", "redisUrl"])
def test_a_made_secret_needs_its_urls(render: Renderer, missing: str) -> None:
    """What cannot be made up must be given, or lie in another Secret."""
    given = {name: value for name, value in SECRETS.items() if name != missing}
    values = {"secret": {"create": True, **given}}
    assert f"secret.{missing} is required with secret.create" in render.refusal(values)
    assert "Secret" in kinds(render({**values, "secretNames": {missing: "elsewhere"}}))


def plain(manifests: list[Manifest]) -> dict[str, str]:
    """What the release's own Secret holds."""
    data = next(item["data"] for item in kept(manifests) if item["kind"] == "Secret")
    return {key: base64.b64decode(text).decode() for key, text in data.items()}


def encoded(text: str) -> str:
    """As a Secret holds it."""
    return base64.b64encode(text.encode()).decode()


def test_references_of_pods_are_complete(render: Renderer) -> None:
    """Whatever a pod refers to is made by the chart or named in the values."""
    manifests = render(EVERYTHING)
    made = {(item["kind"], item["metadata"]["name"]) for item in manifests}
    named = {("Secret", name) for name in ("hooks", "more", "pull")}
    assert set() == set(references(json.loads(as_text([*pods(manifests)])))) - made - named


def references(value: object) -> list[tuple[str, str]]:
    """Every ConfigMap, Secret and account that is referred to anywhere in here."""
    found: list[tuple[str, str]] = []
    if isinstance(value, list):
        found = [name for item in value for name in references(item)]
    if isinstance(value, dict):
        found = [name for item in value.values() for name in references(item)]
        found += [("ConfigMap", value[key]["name"]) for key in ("configMap", "configMapRef") if key in value]
        found += [("Secret", value[key]["name"]) for key in ("secretRef", "secretKeyRef") if key in value]
        found += [("ServiceAccount", value[key]) for key in ("serviceAccountName",) if key in value]
    return found
