"""Which field an error is about: msgspec's words, taken apart."""

import re

import msgspec

from app.domain.errors import FieldError

# A key that is wrong is said as "`key` in" the object that has it.
_PATH = re.compile(r" - at (?:`key` in )?`\$\.?(.*?)`$", re.DOTALL)
_NAMED = re.compile(r"(?:missing required|contains unknown) field `(.*)`", re.DOTALL)


def field_error(error: msgspec.ValidationError, within: str = "") -> FieldError:
    """The field, below the place ``within``, and what is wrong with it."""
    text = str(error)
    found = _PATH.search(text)
    words = text[: found.start()] if found else text
    named = _NAMED.search(words)
    steps = (within, found.group(1) if found else "", named.group(1) if named else "")
    path = ".".join(step for step in steps if step).replace(".[", "[")
    return FieldError(path, f"{words}.")
