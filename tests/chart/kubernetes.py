"""Whether an object is valid, without a field too many, in every supported version of Kubernetes."""

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
from kubernetes_validate import utils

from tests.chart.rendering import Manifest

VERSIONS = tuple(f"1.{minor}" for minor in range(29, 38))

# It reads a megabyte of definitions for each object and version; read once, they take no time worth naming.
utils.schema_contents = functools.cache(utils.schema_contents)
utils.all_versions = functools.cache(utils.all_versions)


@functools.cache
def own_schemas() -> dict[tuple[str, str], Any]:
    """The kinds that Kubernetes does not bring: of each, strictly, the fields that the chart uses."""
    read = [json.loads(path.read_text()) for path in Path(__file__).with_name("schemas").glob("*.json")]
    return {(item["properties"]["apiVersion"]["const"], item["properties"]["kind"]["const"]): item for item in read}


def problems(manifest: Manifest) -> list[str]:
    """What is wrong with an object, version by version; a kind that nobody knows is wrong too."""
    return list(_problems(json.dumps(manifest)))


@functools.cache
def _problems(text: str) -> tuple[str, ...]:
    """Many sets of values make the same object: it is looked at once."""
    manifest: Manifest = json.loads(text)
    own = own_schemas().get((manifest["apiVersion"], manifest["kind"]))
    if own:
        found = jsonschema.Draft202012Validator(own).iter_errors(manifest)
        return tuple(f"{manifest['kind']}: {error.json_path}: {error.message}" for error in found)
    return tuple(problem for version in VERSIONS for problem in _problems_in(version, manifest))


def _problems_in(version: str, manifest: Manifest) -> list[str]:
    try:
        assert version == kubernetes_validate.validate(manifest, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{manifest['kind']} in {version}: {error.json_path}: {error.message}"]
    except kubernetes_validate.SchemaNotFoundError as error:
        return [error.message]
    return []
