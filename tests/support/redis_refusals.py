"""Ways in which a Redis answers reads and refuses writes, and how each is undone."""

from collections.abc import Awaitable, Callable
from typing import Any

QUEUE = "arq:queue"

Refusal = Callable[[Any], Awaitable[None]]


async def full(redis: Any) -> None:
    """It may hold no more, and evicts nothing."""
    await redis.config_set("maxmemory", "1")


async def replica(redis: Any) -> None:
    """It follows another server, that nobody runs."""
    await redis.execute_command("REPLICAOF", "127.0.0.1", "1")


async def paused(redis: Any) -> None:
    """Its writes wait."""
    await redis.execute_command("CLIENT", "PAUSE", "60000", "WRITE")


async def wrong_type(redis: Any) -> None:
    """The queue is not a sorted set."""
    await redis.delete(QUEUE)
    await redis.set(QUEUE, "not a sorted set")


async def healed(redis: Any) -> None:
    """It takes writes again; a queue of the wrong type is gone."""
    await redis.execute_command("CLIENT", "UNPAUSE")
    await redis.execute_command("REPLICAOF", "NO", "ONE")
    await redis.config_set("maxmemory", "0")
    if await redis.type(QUEUE) == b"string":
        await redis.delete(QUEUE)


# By what Carillon calls it.
REFUSALS: dict[str, Refusal] = {"full": full, "read_only": replica, "timeout": paused, "wrong_type": wrong_type}
