"""Addresses of clients: how they are parsed, and what counts as one client."""

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

UNKNOWN = "unknown"
# A client owns at least a /64 of IPv6. Counted one by one, its addresses would never reach a limit.
IPV6_CLIENT_BITS = 64


@lru_cache(maxsize=4096)
def parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address; an IPv4 address in IPv6 notation becomes IPv4."""
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


@lru_cache(maxsize=4096)
def counted_as(address: str) -> str:
    """Return what an address is counted as: an IPv4 address, or the /64 network of an IPv6 address."""
    parsed = parse_address(address)
    if parsed is None:
        return UNKNOWN
    if isinstance(parsed, IPv4Address):
        return str(parsed)
    return str(IPv6Network((int(parsed), IPV6_CLIENT_BITS), strict=False))
