"""Parts of long lists."""

from collections.abc import Sequence
from typing import Any

import msgspec


class Page(msgspec.Struct, frozen=True):
    """A part of a list, and how long the whole is."""

    items: Sequence[Any]
    total: int
