"""Labels and keys: how objects are named and grouped by the tools that manage them."""

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from app.domain.errors import FieldError, InvalidError
from app.domain.field_errors import EXPECTED, field_errors

MOST_LABELS = 32
LONGEST_KEY = 200

_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PREFIX = r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/"

# As Kubernetes has them.
LabelName = Annotated[
    str,
    Meta(
        max_length=317,
        pattern=rf"^(?:{_PREFIX})?{_NAME}$",
        extra={
            EXPECTED: "a name of 1 to 63 letters, digits, `-`, `_` and `.`, which begins and ends with a letter or "
            "a digit, optionally behind a DNS name and `/`"
        },
    ),
]
LabelValue = Annotated[
    str,
    Meta(
        max_length=63,
        pattern=rf"^(?:{_NAME})?$",
        extra={
            EXPECTED: "at most 63 letters, digits, `-`, `_` and `.`, which begin and end with a letter or a digit, "
            "or nothing"
        },
    ),
]
Labels = Annotated[dict[LabelName, LabelValue], Meta(max_length=MOST_LABELS, examples=[{"team": "shop"}])]


def label_pairs(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the labels that texts name as ``name=value``, each once; ``InvalidError`` for one that is not a label."""
    pairs = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or field_errors(name, LabelName) or field_errors(value, LabelValue):
            raise InvalidError(FieldError("label", f"'{text[:100]}' is not a label. Write `name=value`."))
        pairs.append((name, value))
    return tuple(sorted(set(pairs)))


Key = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LONGEST_KEY,
        pattern=r"^[A-Za-z0-9._:/-]+$",
        examples=["shop/nightly-report"],
        extra={EXPECTED: "1 to 200 letters, digits, and `.`, `_`, `:`, `/`, `-`"},
    ),
]
