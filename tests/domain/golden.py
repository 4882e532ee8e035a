"""Sequences of slots written by hand, and how they are read."""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from app.domain.recurrence import Recurrence
from app.domain.specs import Spec, canonical

BERLIN = {"timezone": "Europe/Berlin"}
NEW_YORK = {"timezone": "America/New_York"}
LORD_HOWE = {"timezone": "Australia/Lord_Howe"}
SAO_PAULO = {"timezone": "America/Sao_Paulo"}
APIA = {"timezone": "Pacific/Apia"}
GOOSE_BAY = {"timezone": "America/Goose_Bay"}
NUUK = {"timezone": "America/Nuuk"}
PYONGYANG = {"timezone": "Asia/Pyongyang"}


class Row(msgspec.Struct, frozen=True):
    """A spec as it is posted, the moment from which it counts, and the slots from there on."""

    name: str
    spec: dict[str, Any]
    start: str
    expected: list[str]


def compiled(fields: dict[str, Any], anchor: datetime) -> Recurrence:
    """The slots of a spec as it is posted."""
    return Spec(**canonical(fields)).slots(anchor)


def shown(slot: datetime | None, place: str = "UTC") -> str:
    """A slot as the clock of the place shows it."""
    return "never" if slot is None else slot.astimezone(ZoneInfo(place)).strftime("%a %Y-%m-%d %H:%M %z")


def utc(text: str) -> datetime:
    """A moment of UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def moment(text: str) -> datetime:
    """What `shown` shows, read back."""
    return datetime.strptime(text, "%a %Y-%m-%d %H:%M %z")
