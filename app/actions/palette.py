"""How actions and triggers are shown in a palette: title, category, icon, colour, and the schema of their outputs."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

# For actions of plugins that choose none.
DEFAULT_ICON = "puzzle"
DEFAULT_COLOR = "#475569"
_LINE = re.compile(r"\S(.{0,58}\S)?")
_ICON = re.compile(r"(?=.{1,60}\Z)[a-z][a-z0-9]*(-[a-z0-9]+)*")
_COLOR = re.compile(r"#[0-9a-fA-F]{6}")
_RULES = (
    ("title", _LINE, "a line of 1 to 60 characters"),
    ("category", _LINE, "a line of 1 to 60 characters"),
    ("icon", _ICON, "the name of a lucide icon, such as 'calendar-clock'"),
    ("color", _COLOR, "of the form #rrggbb"),
)


class Appearance(msgspec.Struct, frozen=True, kw_only=True):
    """How an entry of the palette looks. What is blank gets a default."""

    title: str = ""
    category: str = ""
    # The name of a lucide icon.
    icon: str = ""
    # ``#rrggbb``, dark enough for a white icon on it.
    color: str = ""

    def completed(self, name: str, origin: str) -> "Appearance":
        """Return the same with defaults for an action of this name and distribution."""
        return Appearance(
            title=self.title or _title_of(name),
            category=self.category or origin.removeprefix("carillon-").replace("-", " ").capitalize(),
            icon=self.icon or DEFAULT_ICON,
            color=self.color or DEFAULT_COLOR,
        )


def _title_of(name: str) -> str:
    """Return ``Content publish`` for ``cms.content.publish``: the first word names the plugin."""
    _, _, rest = name.partition(".")
    return (rest or name).replace(".", " ").replace("_", " ").capitalize()


def output_schema(outputs: Any) -> dict[str, Any] | None:
    """Return the JSON Schema of outputs; None if they are not known.

    They are given as a type, as several of which each is possible, or as a JSON Schema.
    """
    if outputs is None or isinstance(outputs, dict):
        return outputs
    if isinstance(outputs, tuple):
        options, definitions = msgspec.json.schema_components(outputs, ref_template="#/$defs/{name}")
        return {"anyOf": list(options), "$defs": definitions}
    return msgspec.json.schema(outputs)


def palette_shortcomings(look: Appearance, outputs: Any) -> Iterator[str]:
    """Yield what is wrong with the way an action is shown."""
    for field, pattern, expected in _RULES:
        text = getattr(look, field)
        if text != "" and not (isinstance(text, str) and pattern.fullmatch(text)):
            yield f"its {field} is not {expected}"
    try:
        msgspec.json.encode(output_schema(outputs))
    except TypeError as error:
        yield f"its outputs have no JSON Schema: {error}"
