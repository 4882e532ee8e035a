"""Which addresses outgoing calls may reach: public ones, and what the operator allows by name or network."""

import socket
from collections.abc import Iterable
from contextlib import suppress
from contextvars import ContextVar
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# They may count as global, by the version of Python, and yet lead inside: NAT64, 6to4, Teredo, addresses that carry an
# IPv4 one, site-local ones, and where clouds keep their metadata and agents.
_INSIDE = tuple(
    ip_network(network)
    for network in (
        *("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96", "::ffff:0:0:0/96", "fec0::/10"),
        *("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32"),
    )
)

# Set for the time of one call whose host name is allowed; connecting happens in tasks that inherit it.
_host_allowed: ContextVar[bool] = ContextVar("host_allowed", default=False)


class AddressRefusedError(OSError):
    """The address is neither public nor allowed by CARILLON_HTTP_ALLOW."""

    code = "address_refused"


class AddressGuard:
    """Judges each address at the moment of connecting: one choke point for names, literals and rebinding."""

    def __init__(self, allowed: Iterable[str]) -> None:
        """``allowed`` holds host names, addresses and CIDRs."""
        self._hosts: set[str] = set()
        self._networks: list[Network] = []
        for entry in allowed:
            try:
                self._networks.append(ip_network(entry.strip("[]"), strict=False))
            except ValueError:
                self._hosts.add(entry.lower().rstrip("."))

    def open_socket(self, addr_info: Any) -> socket.socket:
        """A socket for an address that is allowed; aiohttp calls this after the name is resolved."""
        family, kind, proto, _, sockaddr = addr_info
        self.require(str(sockaddr[0]))
        opened = socket.socket(family, kind, proto)
        opened.setblocking(False)
        return opened

    def require(self, literal: str) -> None:
        """Raise ``AddressRefusedError`` unless the address may be reached."""
        if not (_host_allowed.get() or self.permits(ip_address(literal.split("%", maxsplit=1)[0]))):
            raise AddressRefusedError(f"The address {literal} is not public and not in CARILLON_HTTP_ALLOW.")

    def permits(self, address: Address) -> bool:
        """Whether an address is allowed or public."""
        if isinstance(address, IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        if any(address in network for network in self._networks if network.version == address.version):
            return True
        return (
            address.is_global
            and not address.is_multicast
            and not any(address in network for network in _INSIDE if address.version == network.version)
        )

    def trust_host(self, host: str | None) -> None:
        """From here on, in this task, connect wherever an allowed host name leads; any other name is judged."""
        name = (host or "").lower().rstrip(".")
        with suppress(ValueError):
            ip_address(name.strip("[]"))
            name = ""
        _host_allowed.set(name in self._hosts)
