"""``carillon import ductile``: the schedules of Ductile's plugins, and what becomes of each field.

Covers app.services.imports.ductile.
"""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.services.declarations.files import Source, read_file
from app.services.declarations.yaml_text import write_documents
from app.services.imports.conversion import Import, Target, declare
from app.services.imports.ductile import read_ductile
from tests.support.declarations import CATALOG
from tests.support.hypothesis_examples import examples

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EXAMPLE = """\
plugins:
  example:
    schedules:
      - id: hourly
        command: poll
        every: 1h
        jitter: 30s
        catch_up: run_once
        if_running: skip
        only_between: "08:00-18:00"
        timezone: "Australia/Sydney"
        not_on: [saturday, sunday]
        payload:
          source: scheduler
"""


def converted(text: str, timezone: str | None = None) -> Import:
    """Convert a configuration."""
    return declare(read_ductile(text, timezone), Target("ductile"), NOW)


def one(**entry: Any) -> Import:
    """Convert a configuration with one schedule."""
    return converted(write_documents([{"plugins": {"example": {"schedules": [entry]}}}]))


def schedules(result: Import) -> list[dict[str, Any]]:
    """Return the declared schedules."""
    declared: list[dict[str, Any]] = (result.document or {}).get("schedules", [])
    return declared


def test_every_field_has_a_counterpart() -> None:
    """Without a notice."""
    result = converted(EXAMPLE)
    assert () == result.notices
    assert [
        {
            "name": "example/hourly",
            "workflow": "example/hourly",
            "description": "Ductile: example poll",
            "every": "1h",
            "timezone": "Australia/Sydney",
            "catch_up": "run_once",
            "jitter_seconds": 30,
            "if_running": "skip",
            "only_between": "08:00-18:00",
            "not_on": ["saturday", "sunday"],
            "trigger_payload": {"plugin": "example", "command": "poll", "source": "scheduler"},
        }
    ] == schedules(result)


@pytest.mark.parametrize(
    ("entry", "expected", "notices"),
    [
        ({"every": "5m"}, {"name": "example/default", "every": "5m"}, []),
        ({"every": "monthly"}, {"every": "monthly"}, []),
        ({"every": "5m", "jitter": "1.2s"}, {"jitter_seconds": 2}, []),
        ({"cron": "0 9 * * 1", "timezone": "UTC"}, {"cron": "0 9 * * 1", "timezone": "UTC"}, []),
        ({"cron": "0 9 * * 1"}, {"cron": "0 9 * * 1"}, ["no timezone is given, so it is UTC. Name another one with"]),
        ({"at": "2030-01-01T00:00:00+02:00"}, {"at": "2030-01-01T00:00:00+02:00"}, []),
        ({"after": "5m"}, {"after": "5m"}, ["after is counted from the first apply"]),
        ({"every": "5m", "if_running": "cancel"}, {"if_running": "cancel"}, []),
        (
            {"every": "5m", "if_running": "queue"},
            {"if_running": "queue", "max_queued": 100},
            ["if_running: queue runs one after another, and at most 100 wait"],
        ),
        (
            {"at": "2030-01-01T00:00:00Z", "catch_up": "run_all", "jitter": "5s"},
            {"at": "2030-01-01T00:00:00Z"},
            ["catch_up is left out", "jitter is left out"],
        ),
        ({"every": "5m", "not_on": 7, "timezone": "UTC"}, {"not_on": [7]}, []),
        ({"every": "5m", "colour": "red"}, {"every": "5m"}, ["'colour' of a schedule has no counterpart"]),
        (
            {"every": "5m", "payload": {"command": "mine"}},
            {"trigger_payload": {"plugin": "example", "command": "mine"}},
            ["the payload's own 'command' is kept"],
        ),
    ],
)
def test_an_entry(entry: dict[str, Any], expected: dict[str, Any], notices: list[str]) -> None:
    """What differs from Ductile is said."""
    result = one(**entry)
    (schedule,) = schedules(result)
    assert expected.items() <= schedule.items()
    assert ("catch_up" in schedule, "jitter_seconds" in schedule) == (False, "jitter_seconds" in expected)
    assert len(notices) == len(result.notices)
    assert all(text in notice.message for text, notice in zip(notices, result.notices, strict=True))


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({}, "exactly one of every, cron, at, after must be given"),
        ({"every": "5m", "cron": "@daily"}, "exactly one of every, cron, at, after must be given"),
        ({"every": "often"}, "every: Expected a duration"),
        ({"every": 300}, "every: Expected a string"),
        ({"cron": "0 0 30 2 *"}, "cron: No date fits"),
        ({"at": "2020-01-01T00:00:00Z"}, "at: The time is past"),
        ({"at": "tomorrow"}, "at: "),
        ({"every": "5m", "jitter": "soon"}, "Expected a duration"),
        ({"every": "5m", "timezone": "Mars/Olympus"}, "no timezone 'Mars/Olympus'"),
        ({"every": "5m", "if_running": "panic"}, "if_running: "),
        ({"every": "5m", "catch_up": ["x"]}, "catch_up: "),
        ({"every": "5m", "only_between": "late"}, "only_between: "),
        ({"every": "5m", "payload": "text"}, "payload is not an object"),
        ({"cron": "0 7 * * *", "only_between": "08:00-09:00"}, "The spec has no slot"),
    ],
)
def test_what_cannot_be_converted_is_left_out(entry: dict[str, Any], reason: str) -> None:
    """With the reason."""
    result = one(**entry)
    (left_out,) = [notice for notice in result.notices if notice.left_out]
    assert (None, True) == (result.document, reason in left_out.message), left_out


def test_the_rest_of_a_configuration_is_named() -> None:
    """A single schedule is one, too; a plugin that is not enabled has paused schedules."""
    result = converted(
        "service: {name: x}\nplugins:\n  a:\n    enabled: false\n    config: {}\n    schedule: {every: 5m}\n"
        "  b: {schedules: {every: 1h}}\n  c: {}\n  d: text\n  e: {schedules: [text]}\n---\nother: 1\n"
    )
    assert [("a/default", True), ("b/default", None)] == [(s["name"], s.get("paused")) for s in schedules(result)]
    assert [
        (1, False, "'service' has no counterpart; only the schedules of `plugins` are converted."),
        (5, False, "'config' of a plugin has no counterpart."),
        (6, False, "the plugin is not enabled: the schedule is declared as paused."),
        (9, True, "the plugin 'd' is not an object."),
        (10, True, "schedule of 'e': it is not an object."),
        (12, True, "there are no `plugins` in this document."),
    ] == [(notice.line, notice.left_out, notice.message) for notice in result.notices]


def test_a_timezone_of_the_service_is_for_those_without() -> None:
    """Named by the operator."""
    result = converted("plugins: {a: {schedules: [{cron: '@daily'}, {id: b, cron: '@daily', timezone: UTC}]}}", "Japan")
    assert (["Japan", "UTC"], ()) == ([s["timezone"] for s in schedules(result)], result.notices)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from(["5m", "@daily", "skip", "08:00-09:00", "\x85", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "command", "plugin"]), inner),
    max_leaves=6,
)
FIELDS = ["id", "command", "every", "cron", "at", "after", "jitter", "catch_up", "if_running", "only_between"]


@given(st.fixed_dictionaries({}, optional=dict.fromkeys([*FIELDS, "timezone", "not_on", "payload"], values)), values)
@examples(200)
def test_no_configuration_is_too_odd(entry: Any, plugin: Any) -> None:
    """Every schedule is converted or named, and what is written can be applied."""
    text = write_documents([{"plugins": {"x": {"schedules": [entry]}, "y": plugin, "z": {"schedules": plugin}}}])
    result = converted(text)
    if result.document is not None:
        assert () == read_file(Source("out.yaml", write_documents([result.document]).encode()), CATALOG).problems


def test_characters_that_cannot_be_stored_are_refused() -> None:
    """YAML can escape half of a character."""
    result = converted('plugins: {a: {schedules: [{every: 5m, payload: {x: "\\ud800"}}]}}')
    assert [True] == [notice.left_out for notice in result.notices]
    assert "cannot be stored" in result.notices[0].message
