"""The table of values in the chart's README, made from values.yaml.

``python -m tests.chart.values_table`` writes it.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.chart.rendering import CHART

README = CHART / "README.md"
BEGIN, END = "<!-- values: begin -->\n", "<!-- values: end -->\n"
KEY = re.compile(r"^(?P<indent> *)(?P<name>[A-Za-z]+):")


def defaults() -> dict[str, Any]:
    """The chart's own values."""
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return values


def schema() -> dict[str, Any]:
    """The schema of the values."""
    read: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
    return read


def leaves(values: dict[str, Any], described: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that can be given, with its default: what the schema takes apart is a group."""
    for name, value in values.items():
        inner = described["properties"][name]
        if "properties" in inner:
            yield from leaves(value, inner, f"{above}{name}.")
        else:
            yield above + name, value


def comments() -> dict[str, str]:
    """The comment above each key of values.yaml, by the key's path."""
    found: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    words: list[str] = []
    for line in (CHART / "values.yaml").read_text().splitlines():
        key = KEY.match(line)
        if line.lstrip().startswith("#"):
            words.append(line.lstrip("# "))
        elif key:
            path = [(indent, name) for indent, name in path if indent < len(key["indent"])]
            path.append((len(key["indent"]), key["name"]))
            found[".".join(name for _, name in path)] = " ".join(words)
        if not line.lstrip().startswith("#"):
            words = []
    return found


def table() -> str:
    """A line for each value."""
    said = comments()
    head = "| value | default | meaning |\n|---|---|---|\n"
    rows = (f"| `{path}` | `{json.dumps(value)}` | {said[path]} |\n" for path, value in leaves(defaults(), schema()))
    return head + "".join(rows)


def written() -> str:
    """The table as it stands in the README."""
    return README.read_text().partition(BEGIN)[2].partition(END)[0]


if __name__ == "__main__":
    text = README.read_text()
    README.write_text(text.partition(BEGIN)[0] + BEGIN + table() + END + text.partition(END)[2])
