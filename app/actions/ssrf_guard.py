"""The SSRF guard: which addresses outgoing calls may reach, and how the names of targets are resolved."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, TypedDict

import aiodns
import msgspec

from app import clock
from app.cache import BoundedCache, ExpiringCache

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ip_network(text) for text in texts)


# All public IPv6 addresses are in here. Some versions of Python also call addresses outside of it global:
# 5f00::/16 (segment routing), 64:ff9b::/96 (NAT64), fec0::/10 (site-local).
_PUBLIC_IPV6 = IPv6Network("2000::/3")
# Inside of it, or global to some versions of Python, but not public: protocol assignments with Teredo, documentation,
# 6to4, and Azure's agent.
_NOT_PUBLIC = _networks(
    *("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
    *("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32"),
)
# Where clouds serve credentials. Allowing a host name does not allow these; the address itself must be allowed.
_METADATA = _networks(
    # Link-local: AWS, GCP, Azure, Oracle, OpenStack and others, and the credentials of containers.
    *("169.254.0.0/16", "fe80::/10"),
    # AWS, GCP, Oracle, Scaleway.
    *("fd00:ec2::/32", "fd20:ce::/32", "fd00:c1::/32", "fd00:42::/32"),
    # Alibaba, Azure's agent, Oracle's first cloud.
    *("100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32"),
)
# Addresses whose last 32 bits are an IPv4 address: NAT64, and two old ways of writing one.
_CARRIES_IPV4 = _networks("64:ff9b::/96", "64:ff9b:1::/48", "::/96", "::ffff:0:0:0/96")


CACHED_VERDICTS = 4000


class AddressRefusedError(OSError):
    """The address is neither public nor allowed by CARILLON_HTTP_ALLOW."""

    code = "address_refused"


class Target(msgspec.Struct, frozen=True):
    """The host of a call, as its URL names it."""

    host: str
    # The URL has an address instead of a name.
    is_literal: bool
    # The name is in CARILLON_HTTP_ALLOW.
    is_allowed: bool


class AddressGuard:
    """Judges addresses before they are connected to: one place for names, literal addresses and DNS rebinding."""

    def __init__(self, allowed: Iterable[str]) -> None:
        """``allowed`` holds host names, addresses and CIDRs."""
        self._hosts: set[str] = set()
        self._allowed: list[Network] = []
        # By the address, and whether the name that led to it is allowed. Every call asks.
        self._verdicts: BoundedCache[tuple[str, bool], bool] = BoundedCache(CACHED_VERDICTS)
        for entry in allowed:
            try:
                self._allowed.append(ip_network(entry.strip("[]"), strict=False))
            except ValueError:
                self._hosts.add(entry.lower().rstrip("."))

    def target(self, host: str) -> Target:
        """Return the host of a call, which decides on the addresses that it may lead to."""
        name = host.lower().rstrip(".")
        is_literal = _is_address(name)
        return Target(host, is_literal, is_allowed=not is_literal and name in self._hosts)

    def require(self, literal: str, target: Target | None = None) -> None:
        """Raise ``AddressRefusedError`` unless the address may be reached by a call to this target."""
        key = (literal, target is not None and target.is_allowed)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._judge(*key)
            self._verdicts.keep(key, verdict)
        if not verdict:
            raise AddressRefusedError(_refusal(literal, target))

    def _judge(self, literal: str, is_allowed: bool) -> bool:  # noqa: FBT001 - of a private method
        address = ip_address(literal.split("%", maxsplit=1)[0])
        return self.permits(address) or (is_allowed and not is_metadata(address))

    def permits(self, address: Address) -> bool:
        """Return whether an address is allowed or public."""
        if isinstance(address, IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        return _is_in(address, self._allowed) or is_public(address)


def is_public(address: Address) -> bool:
    """Return whether an address belongs to the public internet."""
    if isinstance(address, IPv6Address) and address not in _PUBLIC_IPV6:
        return False
    return address.is_global and not address.is_multicast and not _is_in(address, _NOT_PUBLIC)


def is_metadata(address: Address) -> bool:
    """Return whether an address, or an IPv4 address inside it, serves a cloud's metadata."""
    return any(_is_in(candidate, _METADATA) for candidate in (address, *_carried(address)))


def _carried(address: Address) -> Iterator[IPv4Address]:
    """Yield the IPv4 addresses that are encoded in an IPv6 address."""
    if isinstance(address, IPv4Address):
        return
    yield from filter(None, (address.ipv4_mapped, address.sixtofour, *(address.teredo or ())))
    if _is_in(address, _CARRIES_IPV4):
        yield IPv4Address(int(address) & 0xFFFFFFFF)


def _is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks if network.version == address.version)


@lru_cache(maxsize=1024)
def _is_address(host: str) -> bool:
    """Return whether a host is an address; cached, because every call asks."""
    try:
        ip_address(host.strip("[]").split("%", maxsplit=1)[0])
    except ValueError:
        return False
    return True


def _refusal(literal: str, target: Target | None) -> str:
    """Return why an address is refused. An address that a name resolved to is not shown: it reveals the network."""
    if target is None or target.is_literal:
        return f"The address {literal} is not public and not in CARILLON_HTTP_ALLOW."
    if target.is_allowed:
        return (
            f"{target.host} leads to a metadata address of a cloud, "
            "which can be reached only if CARILLON_HTTP_ALLOW names that address."
        )
    return f"{target.host} leads to an address that is not public and not in CARILLON_HTTP_ALLOW."


# The total time of one lookup: every name server, every search domain, A and AAAA.
LOOKUP_SECONDS = 3.0
# The maximum for the first try, less for name servers that are known to be fast; each further try waits twice as long.
# With fewer tries, a fast server that is slow for once would be given up before the deadline.
FIRST_TRY_SECONDS = 1.0
TRIES = 4
LOOKUPS_PER_OWNER = 4
# How long a lookup may wait until the owner has fewer lookups in progress. Owners do not wait for each other.
PLACE_SECONDS = 12.0
CACHE_SECONDS = 10.0
CACHED_NAMES = 2000
# Further addresses are not tried: a response can hold thousands.
ADDRESSES_PER_NAME = 16


class NameNotResolvedError(OSError):
    """The name of a target could not be resolved."""

    code = "name_not_resolved"


class ResolvedAddress(TypedDict):
    """One address of a name."""

    host: str
    port: int


class _Places(msgspec.Struct):
    """The lookups of one owner that may be in progress."""

    free: asyncio.Semaphore
    users: int = 0


class TargetResolver:
    """Resolves names for the HTTP client. It has to be created in the running loop."""

    def __init__(self, **channel: Any) -> None:
        """Pass ``channel`` to c-ares, which by default reads the system's resolv.conf and hosts file."""
        self._library = aiodns.DNSResolver(timeout=FIRST_TRY_SECONDS, tries=TRIES, **channel)
        self._owners: dict[int, _Places] = {}
        self._cache: ExpiringCache[tuple[str, int], list[ResolvedAddress]] = ExpiringCache(CACHED_NAMES)

    async def resolve(self, host: str, port: int = 0, owner_id: int = 0) -> list[ResolvedAddress]:
        """Return the addresses of a name; raise ``NameNotResolvedError`` if there are none in time."""
        key = (host, port)
        addresses = self._cached(key)
        if addresses is None:
            async with self._place(host, owner_id):
                # Another call of this owner may have resolved the same name meanwhile.
                addresses = self._cached(key) or await self._look_up(host, port)
            self._keep(key, addresses)
        return addresses

    def cached(self, host: str, port: int) -> list[ResolvedAddress] | None:
        """Return the addresses of a name that was looked up a moment ago, else None."""
        return self._cached((host, port))

    async def close(self) -> None:
        """Cancel the lookups that are in progress."""
        await self._library.close()

    async def _look_up(self, host: str, port: int) -> list[ResolvedAddress]:
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                answer = await self._library.getaddrinfo(
                    host, port=port, type=socket.SOCK_STREAM, family=socket.AF_UNSPEC, flags=socket.AI_ADDRCONFIG
                )
        except TimeoutError:
            raise NameNotResolvedError(f"The name {host} could not be resolved within {LOOKUP_SECONDS:g} s.") from None
        except aiodns.error.DNSError as error:
            reason = error.args[1] if len(error.args) > 1 else "the lookup failed"
            raise NameNotResolvedError(f"The name {host} could not be resolved: {reason}.") from error
        addresses = [ResolvedAddress(host=_literal(node.addr), port=port) for node in answer.nodes]
        if not addresses:
            raise NameNotResolvedError(f"The name {host} could not be resolved: it has no address.")
        return addresses[:ADDRESSES_PER_NAME]

    @asynccontextmanager
    async def _place(self, host: str, owner_id: int) -> AsyncIterator[None]:
        """Hold one of the owner's places for lookups; wait for one if all are taken."""
        places = self._owners.setdefault(owner_id, _Places(asyncio.Semaphore(LOOKUPS_PER_OWNER)))
        places.users += 1
        try:
            await self._acquire(places, host)
            try:
                yield
            finally:
                places.free.release()
        finally:
            places.users -= 1
            if not places.users:
                del self._owners[owner_id]

    async def _acquire(self, places: _Places, host: str) -> None:
        try:
            async with asyncio.timeout(PLACE_SECONDS):
                await places.free.acquire()
        except TimeoutError:
            raise NameNotResolvedError(
                f"The name {host} was not looked up: {LOOKUPS_PER_OWNER} other lookups of this owner are in progress."
            ) from None

    def _cached(self, key: tuple[str, int]) -> list[ResolvedAddress] | None:
        return self._cache.fresh(key, clock.monotonic())

    def _keep(self, key: tuple[str, int], found: list[ResolvedAddress]) -> None:
        """Cache an answer, unless another lookup of the same name has done so: its age must not grow."""
        if self._cached(key) is None:
            self._cache.keep(key, found, clock.monotonic() + CACHE_SECONDS)


def _literal(address: tuple[Any, ...]) -> str:
    """Return an address of c-ares as text; a link-local one needs the number of its interface."""
    text = str(address[0].decode("ascii"))
    scope = address[3] if len(address) > 3 else 0  # noqa: PLR2004 - of IPv6: address, port, flow, scope
    return f"{text}%{scope}" if scope else text


class JudgedAddresses(msgspec.Struct, frozen=True):
    """The addresses of a host that a call may connect to, and why the first refused one was refused."""

    permitted: list[tuple[str, int]]
    refusal: AddressRefusedError | None = None


class TargetAddresses:
    """The addresses that a call may connect to: resolved, then judged one by one."""

    def __init__(self, guard: AddressGuard, resolver: TargetResolver) -> None:
        """Judge by this guard what this resolver answers."""
        self._guard = guard
        self._resolver = resolver

    async def find(self, host: str, port: int, owner_id: int) -> JudgedAddresses:
        """Return the permitted addresses of a host; raise ``NameNotResolvedError`` or, if none is, its refusal."""
        known = self.known(host, port)
        return self._judged(host, port, await self._resolver.resolve(host, port, owner_id)) if known is None else known

    def known(self, host: str, port: int) -> JudgedAddresses | None:
        """Return the permitted addresses of a host if that needs no lookup, else None; raise as ``find`` does."""
        target = self._guard.target(host)
        if target.is_literal:
            self._guard.require(host, target)
            return JudgedAddresses([(host, port)])
        addresses = self._resolver.cached(host, port)
        return None if addresses is None else self._judged(host, port, addresses)

    def _judged(self, host: str, port: int, addresses: Iterable[ResolvedAddress]) -> JudgedAddresses:
        target = self._guard.target(host)
        permitted, refusal = [], None
        for address in addresses:
            try:
                self._guard.require(address["host"], target)
            except AddressRefusedError as error:
                refusal = refusal or error
            else:
                permitted.append((address["host"], port))
        if refusal is not None and not permitted:
            raise refusal
        return JudgedAddresses(permitted, refusal)
