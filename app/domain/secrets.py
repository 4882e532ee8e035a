"""Secrets: who may use which one, and to which hosts it may be sent."""

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
    """A row of the secrets table. Without a value, it shares the secret of the environment that has its name."""

    id: int
    name: str
    owner_id: int
    owner_is_admin: bool
    value: str | None
    # None only for a row without a value: the hosts are those that the environment names.
    allowed_hosts: tuple[str, ...] | None
    shared_with: SharedWith

    def may_be_used_by(self, user_id: int) -> bool:
        """Return whether the secret belongs to a user or is shared with them."""
        if self.owner_id == user_id or self.shared_with == EVERYBODY:
            return True
        return user_id in self.shared_with


class EnvironmentSecret(msgspec.Struct, frozen=True):
    """A secret of the environment or of a file: for admins only, and for any host unless hosts are named."""

    value: str
    allowed_hosts: tuple[str, ...] | None = None


class Secret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret with its value, chosen for a run."""

    name: str
    value: str
    # A host must be allowed by each of these lists.
    host_lists: tuple[tuple[str, ...], ...]
    # The owner of the row; None for a secret of the environment.
    owner_id: int | None

    def may_go_to(self, host: str, port: int | None) -> bool:
        """Return whether the secret may be sent to a host."""
        return all(any(_matches(entry, host, port) for entry in hosts) for hosts in self.host_lists)

    def refusal(self, host: str) -> str:
        """Return the message that the secret may not be sent to a host, and how to allow it."""
        return (
            f"The secret '{self.name}' may not be sent to '{host}'. "
            f"Its owner can add the host to its allowed_hosts: PUT /api/v1/secrets/{self.name}/."
        )


def choose_secret(
    users: Sequence[Actor], stored: Iterable[StoredSecret], environment: EnvironmentSecret | None, name: str
) -> Secret | None:
    """Return the secret of this name that all of these users may use: the first user's own, else a shared one, or None.

    Secrets of the environment count as the admins' own. Of several shared ones an admin's comes first, then the oldest,
    so that a user cannot replace the secret that others get by sharing another one of the same name.
    """
    first = users[0]
    usable = [row for row in stored if row.name == name and all(row.may_be_used_by(user.user_id) for user in users)]
    own = [row for row in usable if row.owner_id == first.user_id]
    shared = sorted(
        (row for row in usable if row.owner_id != first.user_id), key=lambda row: (not row.owner_is_admin, row.id)
    )
    secret = next(filter(None, (_from_row(row, environment) for row in own)), None)
    if secret is None and environment is not None and all(user.sees_all for user in users):
        secret = _from_environment(environment, name)
    return secret or next(filter(None, (_from_row(row, environment) for row in shared)), None)


def host_problem(entry: str) -> str:
    """Return what is wrong with an entry of ``allowed_hosts``, or an empty string."""
    if entry == ANY_HOST:
        return ""
    host, port = _split(entry)
    if port is not None and not 0 < port <= _LAST_PORT:
        return f"'{entry}' has no valid port. A port is a number from 1 to 65535."
    if _address(host) is None and not _HOST.fullmatch(host):
        return f"'{entry}' is not a host. Write example.com, *.example.com, example.com:8443, [::1]:80 or * for any."
    return ""


def _from_row(row: StoredSecret, environment: EnvironmentSecret | None) -> Secret | None:
    """Return the secret of a row, or None if the row shares a secret that the environment does not have."""
    if row.value is not None:
        return Secret(name=row.name, value=row.value, host_lists=(row.allowed_hosts or (),), owner_id=row.owner_id)
    if environment is None or not row.owner_is_admin:
        return None
    lists = [hosts for hosts in (row.allowed_hosts, environment.allowed_hosts) if hosts is not None]
    # If neither the row nor the environment names hosts, no host is allowed: what is shared must say where it may go.
    return Secret(name=row.name, value=environment.value, host_lists=tuple(lists) or ((),), owner_id=row.owner_id)


def _from_environment(environment: EnvironmentSecret, name: str) -> Secret:
    lists = () if environment.allowed_hosts is None else (environment.allowed_hosts,)
    return Secret(name=name, value=environment.value, host_lists=lists, owner_id=None)


def _matches(entry: str, host: str, port: int | None) -> bool:
    if entry == ANY_HOST:
        return True
    allowed, allowed_port = _split(entry)
    if allowed_port is not None and allowed_port != port:
        return False
    host = host.lower().rstrip(".")
    address = _address(host)
    if address is not None:
        return address == _address(allowed)
    return host.endswith(allowed[1:]) if allowed.startswith("*.") else host == allowed


def _split(entry: str) -> tuple[str, int | None]:
    """Return the host and the port of an entry. A port that is not a number becomes 0, which no request uses."""
    entry = entry.lower().strip()
    if _address(entry) is not None:
        return entry, None
    host, colon, port = entry.rpartition(":")
    if not colon or entry.endswith("]"):
        return entry.rstrip("."), None
    return host.rstrip("."), int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 0  # noqa: PLR2004


def _address(host: str) -> object | None:
    """Return an IP address in one spelling, or None if the host is a name."""
    try:
        return ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
