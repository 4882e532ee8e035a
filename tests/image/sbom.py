"""Writes the software bill of materials of the image, in the CycloneDX format, from the lock: `make sbom`."""

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Removed from the image again: Litestar names them and Carillon does not use them.
LEFT_OUT = frozenset({"faker", "polyfactory"})
_PACKAGE = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^ ;\\]+)(?: ; ([^\\\n]+?))? *\\?$", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def bill(lock: str, version: str) -> dict[str, Any]:
    """Return the bill of a lock; packages for some platforms only carry the condition as a property."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "carillon", "version": version}},
        "components": [_component(*found) for found in _entries(lock) if found[0] not in LEFT_OUT],
    }


def _entries(lock: str) -> list[tuple[str, str, str, list[str]]]:
    found = list(_PACKAGE.finditer(lock))
    ends = [match.start() for match in found[1:]] + [len(lock)]
    return [
        (match[1], match[2], match[3] or "", _HASH.findall(lock, match.end(), end))
        for match, end in zip(found, ends, strict=True)
    ]


def _component(name: str, version: str, condition: str, hashes: list[str]) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{version}"
    component: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    # Of all files of this version: which one is installed depends on the platform.
    component["hashes"] = [{"alg": "SHA-256", "content": value} for value in hashes]
    if condition:
        component["properties"] = [{"name": "carillon:condition", "value": condition}]
    return component


def main() -> None:
    """Write the bill to standard output."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    json.dump(bill((ROOT / "requirements.lock").read_text(), project["version"]), sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
