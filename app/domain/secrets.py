"""Whose a secret is, who may use it, and to which hosts it may go."""

import re
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import Literal

import msgspec

from app.domain.access import Actor

NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,99}$(?!\n)"
ANY_HOST = "*"
EVERYBODY: Literal["all"] = "all"
_HOST = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_LAST_PORT = 65535

SharedWith = Literal["all"] | tuple[int, ...]


class StoredSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret as it is stored. Without a value it lends the one that the environment has under its name."""

    id: int
    name: str
    owner_id: int
    owner_is_admin: bool
    value: str | None
    # None, for one that lends: as the environment says.
    allowed_hosts: tuple[str, ...] | None
    shared_with: SharedWith

    def may_be_used_by(self, user_id: int) -> bool:
        """Whether a user owns it or has a share of it."""
        if self.owner_id == user_id or self.shared_with == EVERYBODY:
            return True
        return user_id in self.shared_with


class EnvironmentSecret(msgspec.Struct, frozen=True):
    """A secret of the environment or of a file: the admins', for any host unless some are named."""

    value: str
    allowed_hosts: tuple[str, ...] | None = None


class Secret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret that somebody may use."""

    name: str
    value: str
    # A host has to be allowed by each of these.
    host_lists: tuple[tuple[str, ...], ...]
    # Whose row it is; None for one of the environment.
    owner_id: int | None

    def may_go_to(self, host: str, port: int | None) -> bool:
        """Whether it may be sent to a host."""
        return all(any(_matches(entry, host, port) for entry in hosts) for hosts in self.host_lists)

    def refusal(self, host: str) -> str:
        """Say that it may not be sent to a host, and what would change that."""
        return (
            f"The secret '{self.name}' may not be sent to '{host}'. "
            f"Its owner can add the host to its allowed_hosts: PUT /api/v1/secrets/{self.name}/."
        )


def choose_secret(
    users: Sequence[Actor], stored: Iterable[StoredSecret], environment: EnvironmentSecret | None, name: str
) -> Secret | None:
    """The secret of a name that all of these users may use: the first one's own, else one shared with them.

    For admins those of the environment are their own. Of several shared ones an admin's comes first, then the oldest:
    nobody can put theirs in the place of another by sharing it.
    """
    first = users[0]
    usable = [one for one in stored if one.name == name and all(one.may_be_used_by(user.user_id) for user in users)]
    own = [one for one in usable if one.owner_id == first.user_id]
    shared = sorted(
        (one for one in usable if one.owner_id != first.user_id), key=lambda one: (not one.owner_is_admin, one.id)
    )
    found = next(filter(None, (_of_row(one, environment) for one in own)), None)
    if found is None and environment is not None and all(user.sees_all for user in users):
        found = _of_environment(environment, name)
    return found or next(filter(None, (_of_row(one, environment) for one in shared)), None)


def host_problem(entry: str) -> str:
    """What is wrong with an entry of ``allowed_hosts``; nothing, if it can be used."""
    if entry == ANY_HOST:
        return ""
    host, port = _split(entry)
    if port is not None and not 0 < port <= _LAST_PORT:
        return f"'{entry}' has no valid port."
    if _address(host) is None and not _HOST.fullmatch(host):
        return f"'{entry}' is not a host. Write example.com, *.example.com, example.com:8443, [::1]:80 or * for any."
    return ""


def _of_row(row: StoredSecret, environment: EnvironmentSecret | None) -> Secret | None:
    """A stored secret with its value; None for one that lends what is not there."""
    if row.value is not None:
        return Secret(name=row.name, value=row.value, host_lists=(row.allowed_hosts or (),), owner_id=row.owner_id)
    if environment is None or not row.owner_is_admin:
        return None
    lists = [hosts for hosts in (row.allowed_hosts, environment.allowed_hosts) if hosts is not None]
    # Whoever lends without a word about hosts lends to nobody's host.
    return Secret(name=row.name, value=environment.value, host_lists=tuple(lists) or ((),), owner_id=row.owner_id)


def _of_environment(environment: EnvironmentSecret, name: str) -> Secret:
    lists = () if environment.allowed_hosts is None else (environment.allowed_hosts,)
    return Secret(name=name, value=environment.value, host_lists=lists, owner_id=None)


def _matches(entry: str, host: str, port: int | None) -> bool:
    if entry == ANY_HOST:
        return True
    wanted, wanted_port = _split(entry)
    if wanted_port is not None and wanted_port != port:
        return False
    host = host.lower().rstrip(".")
    address = _address(host)
    if address is not None:
        return address == _address(wanted)
    return host.endswith(wanted[1:]) if wanted.startswith("*.") else host == wanted


def _split(entry: str) -> tuple[str, int | None]:
    """Host and port of an entry. A port that is not a number comes back as 0, which no call has."""
    entry = entry.lower().strip()
    if _address(entry) is not None:
        return entry, None
    host, colon, port = entry.rpartition(":")
    if not colon or entry.endswith("]"):
        return entry.rstrip("."), None
    return host.rstrip("."), int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 0  # noqa: PLR2004


def _address(host: str) -> object | None:
    """An IP address, in one spelling; None for a name."""
    try:
        return ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
