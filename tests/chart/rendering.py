"""The chart, rendered once for each set of values and then remembered."""

import hashlib
import json
import os
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from tests.chart.helms import Helm

Manifest = dict[str, Any]
Values = dict[str, Any]

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "carillon"


class StrictLoader(yaml.CSafeLoader):  # type: ignore[misc]  # it has no types
    """Reads YAML as Kubernetes does: a key that stands twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """A mapping whose keys all differ."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        if len(keys) != len(set(keys)):
            raise yaml.constructor.ConstructorError(None, None, f"a key stands twice: {keys}", node.start_mark)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def objects(text: str) -> list[Manifest]:
    """Every object of a stream of YAML documents."""
    return [manifest for manifest in yaml.load_all(text, Loader=StrictLoader) if manifest]


class Renderer:
    """Renders the chart with one helm."""

    def __init__(self, helm: Helm, scratch: Path, shared: Path) -> None:
        """What is rendered is kept in the shared folder, for all processes of a run that use this helm."""
        self.helm = helm
        self._scratch = scratch
        self._shared = shared
        self._rendered: dict[tuple[str, ...], list[Manifest]] = {}

    def __call__(self, values: Values, *options: str, release: str = "carillon") -> list[Manifest]:
        """The chart's objects. They are shared: look, and change nothing."""
        key = (release, json.dumps(values, sort_keys=True), *options)
        if key not in self._rendered:
            # Options may name a cluster that is another one tomorrow.
            text = self._text(values, release, *options) if options else self._shared_text(key, values, release)
            self._rendered[key] = objects(text)
        return self._rendered[key]

    def _shared_text(self, key: tuple[str, ...], values: Values, release: str) -> str:
        path = self._shared / hashlib.sha256(json.dumps(key).encode()).hexdigest()
        if not path.exists():
            # It appears whole or not at all.
            unfinished = path.with_suffix(f".{os.getpid()}")
            unfinished.write_text(self._text(values, release))
            unfinished.rename(path)
        return path.read_text()

    def _text(self, values: Values, release: str, *options: str) -> str:
        answer = self.helm("template", release, str(CHART), "--namespace", "bells", *self.given(values), *options)
        assert 0 == answer.returncode, answer.stderr
        return answer.stdout

    def refusal(self, values: Values, *options: str) -> str:
        """What helm says to values that must not work."""
        answer = self.helm("template", "carillon", str(CHART), *self.given(values), *options)
        assert 0 != answer.returncode, f"helm accepted {values}"
        return answer.stderr

    def given(self, values: Values) -> tuple[str, str]:
        """The option that hands these values to helm."""
        path = self._scratch / "values.json"
        path.write_text(json.dumps(values))
        return "--values", str(path)
