"""How the catalog shows its entries.

Covers app.actions.palette, app.services.catalog.
"""

from typing import Any

import msgspec
import pytest

from app.actions.builtin import BUILTIN
from app.actions.catalog import TRIGGERS, Action
from app.actions.context import ActionContext
from app.actions.palette import output_schema
from app.actions.shortcomings import shortcomings

# White on a colour needs this contrast to be read, by WCAG 2.2.
LEAST_CONTRAST = 4.5
# The icons of lucide 1.62 that Carillon uses.
ICONS = {
    *("globe", "timer", "circle-dashed", "circle-x", "scroll-text", "circle-pause", "circle-play", "zap", "clock"),
    *("refresh-cw", "mail-x", "phone-off", "history", "calendar-clock", "radar"),
}
# They never have an output.
WITHOUT_OUTPUT = {"core.fail"}


async def work(_config: Any, _context: ActionContext) -> None:
    """Do something."""


def action(**values: Any) -> Action[Any]:
    """An action of a plugin."""
    return Action(**{"name": "cms.content.publish", "config": BUILTIN[0].config, "handler": work, **values})


@pytest.mark.parametrize("entry", [*BUILTIN, *TRIGGERS], ids=lambda entry: str(entry.name))
def test_core_actions_must_have_title_description_category_icon_color_and_outputs(entry: Any) -> None:
    """None of ours is shown by defaults."""
    look = entry.look if isinstance(entry, Action) else entry.appearance
    missing = [name for name, value in msgspec.structs.asdict(look).items() if not value]
    missing += [] if entry.description else ["description"]
    missing += ["outputs"] if entry.outputs is None and entry.name not in WITHOUT_OUTPUT else []
    assert [] == missing, f"{entry.name} has no {', '.join(missing)}"


@pytest.mark.parametrize("entry", [*BUILTIN, *TRIGGERS], ids=lambda entry: str(entry.name))
def test_core_colors_can_be_seen_and_icons_exist(entry: Any) -> None:
    """With a white icon on the colour; a new icon is looked up at lucide before it is added here."""
    assert entry.appearance.icon in ICONS
    assert contrast_with_white(entry.appearance.color) >= LEAST_CONTRAST


def contrast_with_white(color: str) -> float:
    """Return the contrast ratio, as WCAG 2.2 defines it."""
    channels = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in channels)
    return 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)


def test_an_action_that_says_nothing_gets_defaults() -> None:
    """From its name and its distribution."""
    look = action(origin="carillon-cms").appearance
    assert ("Content publish", "Cms", "puzzle", "#475569") == msgspec.structs.astuple(look)
    assert "Publish" == action(name="publish").appearance.title
    assert "Clean up" == action(name="cms.clean_up").appearance.title


def test_what_an_action_says_is_shown() -> None:
    """Each by itself."""
    said = {"title": "Publish", "category": "Content", "icon": "newspaper", "color": "#0f766e"}
    assert said == msgspec.structs.asdict(action(**said).appearance)
    assert [] == shortcomings(action(**said, kind="tool", outputs={"type": "object"}))


class Picture(msgspec.Struct):
    """An output that cannot be described."""

    made_by: type[int]


@pytest.mark.parametrize(
    ("values", "gist"),
    [
        ({"title": "x" * 61}, "its title is not a line"),
        ({"title": "two\nlines"}, "its title is not a line"),
        ({"title": 5}, "its title is not a line"),
        ({"category": " "}, "its category is not a line"),
        ({"icon": "Calendar Clock"}, "its icon is not the name of a lucide icon"),
        ({"icon": "<svg>"}, "its icon is not the name of a lucide icon"),
        ({"icon": None}, "its icon is not the name of a lucide icon"),
        ({"color": "red"}, "its color is not of the form #rrggbb"),
        ({"color": "#fff"}, "its color is not of the form #rrggbb"),
        ({"kind": "trigger"}, "its kind is neither"),
        ({"outputs": Picture}, "its outputs have no JSON Schema"),
        ({"outputs": {"enum": {1j}}}, "its outputs have no JSON Schema"),
    ],
)
def test_what_cannot_be_shown_is_a_shortcoming(values: dict[str, Any], gist: str) -> None:
    """The plugin is told, and its action is not loaded."""
    (problem,) = shortcomings(action(**values))
    assert gist in problem


def test_outputs_are_types_or_schemas() -> None:
    """Several types are alternatives."""
    assert output_schema(None) is None
    assert {"type": "null"} == output_schema(type(None))
    assert {"type": "string"} == output_schema({"type": "string"})
    assert {"anyOf": [{"type": "integer"}, {"type": "string"}], "$defs": {}} == output_schema((int, str))
