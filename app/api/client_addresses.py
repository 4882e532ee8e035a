"""Addresses of clients: who is counted when a request comes through a proxy."""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Network = IPv4Network | IPv6Network
UNKNOWN = "unknown"
# A client owns at least a /64 of IPv6: counted one by one, its addresses would never run out.
IPV6_CLIENT_BITS = 64
# An X-Forwarded-For with more entries was made by a client, not by proxies.
MAX_HOPS = 20


class TrustedProxies:
    """The proxies whose ``X-Forwarded-For`` is believed."""

    def __init__(self, networks: Sequence[Network] = ()) -> None:
        """Trust these networks; by default no proxy is trusted."""
        self._networks = tuple(networks)

    def trusts(self, address: str) -> bool:
        """Return whether a connection from this address is a trusted proxy's."""
        if not self._networks:
            return False
        parsed = _parsed(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    def client_of(self, peer: str, forwarded_for: str) -> str:
        """Return the client's address: the rightmost hop that is not a trusted proxy.

        Everything to the left of that hop was sent by the client and proves nothing.
        """
        client = peer
        for hop in reversed(forwarded_for.rsplit(",", MAX_HOPS)):
            if not self.trusts(client) or _parsed(hop) is None:
                break
            client = hop.strip()
        return client


def counted_as(address: str) -> str:
    """Return what an address is counted as: an IPv4 address, or the /64 network of an IPv6 address."""
    parsed = _parsed(address)
    if parsed is None:
        return UNKNOWN
    if isinstance(parsed, IPv4Address):
        return str(parsed)
    return str(IPv6Network((int(parsed), IPV6_CLIENT_BITS), strict=False))


@lru_cache(maxsize=4096)
def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address; an IPv4 address in IPv6 notation becomes IPv4."""
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
