"""The examples of the chart's README work."""

import re

import pytest
import yaml

from app.database_url import parse
from tests.chart.kubernetes import problems
from tests.chart.manifests import container, environment
from tests.chart.rendering import Manifest, Renderer, Values, objects
from tests.chart.values_table import README, comments, defaults, leaves, schema

BLOCKS = re.findall(r"^ *```yaml\n(.*?)^ *```$", README.read_text(), re.MULTILINE | re.DOTALL)
RECIPES = [manifest for block in BLOCKS if "apiVersion:" in block for manifest in objects(block)]
VALUES = [yaml.safe_load(block) for block in BLOCKS if "apiVersion:" not in block and "externalRules" not in block]


def test_there_are_examples() -> None:
    """Three recipes and seven sets of values are found."""
    assert ["Cluster", "StatefulSet", "Service"] == [manifest["kind"] for manifest in RECIPES]
    assert 7 == len(VALUES)


@pytest.mark.parametrize("manifest", RECIPES, ids=[manifest["kind"] for manifest in RECIPES])
def test_recipes_are_valid(manifest: Manifest) -> None:
    """What the README tells people to apply fits the schemas."""
    assert [] == problems(manifest)


@pytest.mark.parametrize("values", VALUES, ids=[next(iter(values)) for values in VALUES])
def test_values_are_valid(render: Renderer, values: Values) -> None:
    """What the README tells people to give is taken."""
    assert render(values)


def test_recipes_and_values_fit_together(render: Renderer) -> None:
    """The URLs come from the Secrets that the recipes make."""
    together = {name: {**VALUES[2][name], **VALUES[5][name]} for name in ("secretNames", "secretKeys")}
    variables = environment(container(render(together), "api"))
    references = {name: one["valueFrom"]["secretKeyRef"] for name, one in variables.items() if "valueFrom" in one}
    assert {"name": "carillon-postgres-app", "key": "uri"} == references["CARILLON_DATABASE_URL"]
    assert {"name": "carillon-valkey", "key": "url"} == references["CARILLON_REDIS_URL"]
    assert {"name": "carillon", "key": "admin-token"} == references["CARILLON_ADMIN_TOKEN"]


def test_authorities_are_mounted_where_they_are_named(render: Renderer) -> None:
    """The files of the recipes for TLS are those of their mounts, in every process that opens the database."""
    operator, managed = VALUES[3], VALUES[4]
    for name in ("api", "worker", "migrate"):
        item = container(render(operator), name)
        mounts = [mount["mountPath"] for mount in item["volumeMounts"]]
        assert environment(item)["PGSSLROOTCERT"]["value"].rpartition("/")[0] in mounts
        assert "/postgres-ca" in [mount["mountPath"] for mount in container(render(managed), name)["volumeMounts"]]
    (url,) = re.findall(r"url='(postgresql://[^']+)'", README.read_text())
    assert parse(url).files == {"sslrootcert": "/postgres-ca/ca.pem"}


def test_mentioned_values_exist() -> None:
    """Every value that the text names is one of the chart's."""
    groups = {path.rsplit(".", depth)[0] for path, _ in leaves(defaults(), schema()) for depth in (1, 2)}
    text = README.read_text().partition("## Values")[0]
    mentioned = {name for name in re.findall(r"`([A-Za-z]+\.[A-Za-z.]+)[:`]", text) if name.split(".")[0] in defaults()}
    assert {"migrations.enabled", "settings.drainSeconds"} <= mentioned
    assert set() == {name for name in mentioned if name not in comments() and name not in groups}
