"""Actions that others bring, found as installed distributions are.

Covers app.actions.catalog, app.actions.shortcomings.
"""

from importlib.metadata import EntryPoint, distribution, distributions
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.actions.builtin import BUILTIN
from app.actions.catalog import Action
from app.actions.context import ActionContext
from app.actions.plugins import GROUP, load_actions
from app.actions.shortcomings import shortcomings

GOOD = '''
import msgspec
from app.actions.catalog import Action, Skipped

class Config(msgspec.Struct, forbid_unknown_fields=True):
    site: str

async def publish(config, context):
    """Publish what is due."""
    return Skipped("nothing is due")

PUBLISH = Action(name="cms.publish", config=Config, handler=publish, version="2", retry_safe=False)
RETRACT = Action(name="cms.retract", description="Take it back.", config=Config, handler=publish)
GREEDY = Action(name="core.noop", config=Config, handler=publish)
ALL = [PUBLISH, RETRACT, GREEDY]
ODD = 5
'''


@pytest.fixture
def points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """The entry points of a distribution that has just been installed."""
    (tmp_path / "cms_plugin.py").write_text(GOOD)
    (tmp_path / "broken_plugin.py").write_text("raise RuntimeError('no licence')")
    info = tmp_path / "carillon_cms-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: carillon-cms\nVersion: 1.0\n")
    lines = ("all = cms_plugin:ALL", "broken = broken_plugin:ALL", "missing = cms_plugin:NONE", "odd = cms_plugin:ODD")
    (info / "entry_points.txt").write_text("\n".join((f"[{GROUP}]", *lines)))
    monkeypatch.syspath_prepend(str(tmp_path))
    (found,) = [one for one in distributions(path=[str(tmp_path)]) if one.name == "carillon-cms"]
    return list(found.entry_points)


def test_our_own_are_found_in_the_same_way() -> None:
    """By the entry point of Carillon itself."""
    loaded = load_actions()
    assert [action.name for action in BUILTIN] == [action.name for action in loaded.actions]
    assert ({"core"}, ()) == ({action.origin for action in loaded.actions}, loaded.problems)


def test_a_plugin_adds_its_actions(points: list[EntryPoint]) -> None:
    """With their own description, or, as plugins for 0.1 have it, that of the handler; taken names are refused."""
    own = distribution("carillon").entry_points.select(group=GROUP)
    loaded = load_actions([*points, *own])
    actions = {action.name: action for action in loaded.actions}
    added = actions["cms.publish"]
    assert "Take it back." == actions["cms.retract"].description
    assert ("carillon-cms", "2", False, "Publish what is due.") == (
        added.origin,
        added.version,
        added.retry_safe,
        added.description,
    )
    assert len(BUILTIN) + 2 == len(loaded.actions)
    assert {
        "all": "core.noop: the name 'core.noop' is taken by 'core'",
        "broken": "RuntimeError: no licence",
        "missing": "AttributeError: module 'cms_plugin' has no attribute 'NONE'",
        "odd": "TypeError: 'int' object is not iterable",
    } == {problem.plugin: problem.error for problem in loaded.problems}


@pytest.mark.parametrize("action", BUILTIN, ids=lambda action: action.name)
def test_our_own_conform(action: Action[Any]) -> None:
    """They are held to the same."""
    assert [] == shortcomings(action)


class Loose(msgspec.Struct):
    """A configuration that takes anything."""

    x: int = 0


class Odd(msgspec.Struct, forbid_unknown_fields=True):
    """A configuration that cannot be described."""

    x: type[int] = int


async def fine(_config: Any, _context: ActionContext) -> None:
    """Do nothing."""


async def silent(_config: Any, _context: ActionContext) -> None:  # noqa: D103 - that is what is wrong with it
    pass


def not_async(_config: Any, _context: ActionContext) -> None:
    """Do nothing."""


async def curious(_config: Any, _context: ActionContext, _more: int) -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("values", "gist"),
    [
        ({"name": "Bad Name"}, "is not a valid name"),
        ({"aliases": ("x..y",)}, "is not a valid name"),
        ({"version": ""}, "no version"),
        ({"config": dict}, "not a msgspec Struct"),
        ({"config": Loose}, "forbid unknown fields"),
        ({"config": Odd}, "no JSON Schema"),
        ({"handler": not_async}, "not a coroutine"),
        ({"handler": curious}, "does not take a config and a context"),
        ({"handler": silent}, "no description"),
    ],
)
def test_what_does_not_conform_is_told(values: dict[str, Any], gist: str) -> None:
    """One thing at a time, in words."""
    sound: dict[str, Any] = {"name": "x.y", "config": BUILTIN[0].config, "handler": fine}
    assert [] == shortcomings(Action(**sound))
    (problem,) = shortcomings(Action(**(sound | values)))
    assert gist in problem
