"""Secrets as callers see them: never with their values."""

from datetime import datetime
from typing import Literal

import msgspec


class SecretView(msgspec.Struct, frozen=True, kw_only=True):
    """A secret. ``shared_to_you`` marks those of others that you may use."""

    name: str
    owner: int
    shared_to_you: bool
    # None, for one that lends a secret of the environment: the hosts that the environment names.
    allowed_hosts: list[str] | None
    shared_with: Literal["all"] | list[int]
    created_at: datetime
    updated_at: datetime


class SecretPage(msgspec.Struct, frozen=True):
    """A part of the list."""

    items: list[SecretView]
    next_cursor: str | None
