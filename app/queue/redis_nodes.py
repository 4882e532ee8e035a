"""Which server to connect to where Redis is more than one: the master that Sentinels know, or the owner of a hash slot.

A Redis Cluster spreads keys over its nodes by the hash slot of their names. All keys of Carillon have one hash tag, so
that one node holds them all: its scripts work there as on a single server, and each connection goes to that node. A
connection asks for the address when it is opened, and is closed as soon as its server says that another one has the
keys.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection, Connection, ConnectionPool, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError, RedisError, ResponseError

from app.redis_url import Deployment, RedisUrl

# Begins the name of every key in a cluster. What stands in braces decides on the hash slot.
CLUSTER_PREFIX = "{carillon}:"
HASH_SLOT: int = key_slot(CLUSTER_PREFIX.encode())
# A Sentinel or node that does not answer in this time is passed over; a whole call has two seconds.
ASK_SECONDS = 0.5

# Errors after which another server has to be looked for, by the word that they begin with.
_ELSEWHERE = ("READONLY", "MOVED", "ASK", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN")


class Locator(ABC):
    """Finds the server that has the keys of Carillon."""

    @abstractmethod
    async def locate(self) -> tuple[str, int]:
        """Return host and port, or raise ``RedisConnectionError``."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connections to the servers that were asked; they are opened again when needed."""


class SentinelLocator(Locator):
    """Asks Sentinels for the master."""

    def __init__(self, url: RedisUrl, options: dict[str, Any]) -> None:
        """Ask the Sentinels of this URL, with these options of connections."""
        self._master = url.master
        self._sentinel = Sentinel(  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
            url.addresses,
            sentinel_kwargs={
                **options,
                "username": url.sentinel_username or None,
                "password": url.sentinel_password or None,
            },
        )

    async def locate(self) -> tuple[str, int]:
        """Return the master on which the first Sentinel that answers is clear."""
        host, port = await self._sentinel.discover_master(self._master)
        return str(host), int(port)

    async def close(self) -> None:
        """Close the connections to the Sentinels."""
        for sentinel in self._sentinel.sentinels:
            await sentinel.aclose()


class ClusterLocator(Locator):
    """Asks the nodes of a Redis Cluster for the owner of the hash slot."""

    def __init__(self, url: RedisUrl, options: dict[str, Any]) -> None:
        """Ask the nodes of this URL first, later those that the cluster has named."""
        self._options = options
        self._given = url.addresses
        self._known: tuple[tuple[str, int], ...] = ()

    async def locate(self) -> tuple[str, int]:
        """Return the node that owns the hash slot, as the first node that answers says."""
        errors: list[str] = []
        for address in dict.fromkeys((*self._known, *self._given)):
            try:
                slots = await self._ask(address)
            except (RedisError, OSError) as error:
                errors.append(f"{address[0]}:{address[1]}: {error}")
                continue
            owner = _owner(slots, address)
            if owner is not None:
                self._known = tuple(dict.fromkeys((owner, *_nodes(slots, address))))
                return owner
            errors.append(f"{address[0]}:{address[1]}: no node owns the hash slot {HASH_SLOT}")
        raise RedisConnectionError(f"No node of the cluster answers. {'; '.join(errors)}")

    async def close(self) -> None:
        """Do nothing: each question has a connection of its own."""

    async def _ask(self, address: tuple[str, int]) -> "_Slots":
        async with Redis(host=address[0], port=address[1], **self._options) as node:
            slots: _Slots = await node.execute_command("CLUSTER SLOTS")  # type: ignore[no-untyped-call]  # the same
            return slots


# The answer to CLUSTER SLOTS: for each range of slots the first, the last, the owner, and its replicas.
_Slots = Sequence[Sequence[Any]]


def _owner(slots: _Slots, asked: tuple[str, int]) -> tuple[str, int] | None:
    owners = (owner for first, last, owner, *_ in slots if first <= HASH_SLOT <= last)
    return next((_address(owner, asked) for owner in owners), None)


def _nodes(slots: _Slots, asked: tuple[str, int]) -> list[tuple[str, int]]:
    """Return all nodes of the cluster: one that was added later can answer when those of the URL are gone."""
    return [_address(node, asked) for _, _, *nodes in slots for node in nodes]


def _address(node: Sequence[Any], asked: tuple[str, int]) -> tuple[str, int]:
    """Return host and port of a node. One that does not know its own host has the host at which it was asked."""
    host, port, *_ = node
    return (host.decode() if host else asked[0]), int(port)


class LocatedConnection(Connection):
    """A connection to the server that is found when the connection is opened."""

    def __init__(self, *, locator: Locator, **options: Any) -> None:
        """Ask this locator for the address."""
        super().__init__(**options)
        self._locator = locator

    async def _connect(self) -> None:
        self.host, self.port = await self._locator.locate()
        await super()._connect()  # type: ignore[no-untyped-call]  # redis-py leaves it untyped

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """Read an answer; close the connection if it says that another server has the keys."""
        try:
            return await super().read_response(*args, **options)
        except ResponseError as error:
            if not _is_elsewhere(error):
                raise
            await self.disconnect()
            raise RedisConnectionError(f"Another server has the keys: {error}") from error


class _LocatedTlsConnection(LocatedConnection, SSLConnection):
    """The same with TLS."""


def _is_elsewhere(error: ResponseError) -> bool:
    # redis-py removes the word from errors that have a class of their own.
    return isinstance(error, ReadOnlyError) or str(error).startswith(_ELSEWHERE)


class LocatedPool(ConnectionPool):
    """A pool of connections to the server that the locator finds."""

    def __init__(self, locator: Locator, **options: Any) -> None:
        """Open no connection yet."""
        super().__init__(locator=locator, **options)
        self._locator = locator

    async def disconnect(self, inuse_connections: bool = True) -> None:  # noqa: FBT001, FBT002 - redis-py's signature
        """Close the connections, also those to the servers that were asked."""
        await super().disconnect(inuse_connections)
        await self._locator.close()


def located_pool(url: RedisUrl, **options: Any) -> LocatedPool:
    """Return a pool for Redis with Sentinels or a Redis Cluster."""
    server: dict[str, Any] = {**parse_url(url.server_url)}
    server.pop("host", None)
    server.pop("port", None)
    kind: type[AbstractConnection] = server.pop("connection_class", Connection)
    is_tls = issubclass(kind, SSLConnection)
    asking = {
        "socket_timeout": ASK_SECONDS,
        "socket_connect_timeout": ASK_SECONDS,
        "retry": Retry(NoBackoff(), 0),
        **{name: value for name, value in server.items() if is_tls and name.startswith("ssl_")},
        **({"ssl": True} if is_tls else {}),
    }
    if url.deployment is Deployment.SENTINEL:
        locator: Locator = SentinelLocator(url, asking)
    else:
        login = {name: value for name, value in server.items() if name in {"username", "password"}}
        locator = ClusterLocator(url, asking | login)
    connection_class = _LocatedTlsConnection if is_tls else LocatedConnection
    return LocatedPool(locator, connection_class=connection_class, **options, **server)
