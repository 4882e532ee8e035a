"""The table of events in docs/development.md is the whole truth."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from app.observability.logs import LIBRARY_EVENT
from tests.support.source import parse

ROOT = Path(__file__).parents[2]
LEVELS = {"debug", "info", "warning", "error", "exception"}


def calls() -> Iterator[ast.Call]:
    """All calls in the code."""
    for file in (ROOT / "app").rglob("*.py"):
        yield from (node for node in ast.walk(parse(file.read_text())) if isinstance(node, ast.Call))


def is_log_call(call: ast.Call) -> bool:
    """Whether something is said to the log of a module, be it at a level that is only known then."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="log"), attr=level):
            return level in LEVELS
        case ast.Call(func=ast.Name(id="getattr"), args=[ast.Name(id="log"), *_]):
            return True
    return False


def events_in_code() -> set[str]:
    """Every name of an event, wherever it is written."""
    found: list[ast.expr] = []
    for call in calls():
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if is_log_call(call):
            found.append(call.args[0])
        elif name == "Outage":
            found += [keyword.value for keyword in call.keywords]
    return {LIBRARY_EVENT, *(str(node.value) for node in found if isinstance(node, ast.Constant))}


def test_every_event_is_in_the_table_and_nothing_else_is() -> None:
    """One name a line, in words that are joined by underscores."""
    table = (ROOT / "docs" / "development.md").read_text().partition("## The events in the log")[2]
    told = {
        name
        for line in table.splitlines()
        if line[:1] == "|"
        for name in re.findall(r"`(\w+)`", line.partition(" | ")[0])
    }
    assert events_in_code() == told
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", event) for event in told)
