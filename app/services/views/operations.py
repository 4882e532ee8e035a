"""What operators see: actions, settings, pings."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType


class ActionView(msgspec.Struct, kw_only=True):
    """An action that nodes may use."""

    name: str
    aliases: list[str]
    version: str
    origin: str
    scope: str
    retry_safe: bool
    # The fields in which templates may name secrets.
    secret_fields: list[str]
    description: str
    config_schema: dict[str, Any]


class PluginProblemView(msgspec.Struct):
    """A plugin that could not be used, or not whole."""

    plugin: str
    error: str


class ActionList(msgspec.Struct):
    """All actions, and, for admins only, the plugins that could not be used."""

    items: list[ActionView]
    problems: list[PluginProblemView]


class SettingsView(msgspec.Struct):
    """What is on."""

    schedules_enabled: bool


class PingView(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a ping did; or, with ``busy``, that another one is at it."""

    ok: bool = msgspec.field(default_factory=lambda: True)
    busy: bool = False
    message: str = ""
    ran: int | UnsetType = UNSET
    skipped: int | UnsetType = UNSET
    blocked: int | UnsetType = UNSET
    errors: int | UnsetType = UNSET
    dead_lettered: int | UnsetType = UNSET
