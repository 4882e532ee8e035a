"""Ways in which a Redis answers reads and refuses writes, and how each is undone."""

from collections.abc import Awaitable, Callable
from typing import Any

QUEUE = "arq:queue"

Refusal = Callable[[Any], Awaitable[None]]


async def full(redis: Any) -> None:
    """Let Redis reach its memory limit without evicting anything."""
    await redis.config_set("maxmemory", "1")


async def replica(redis: Any) -> None:
    """Make Redis the read-only replica of a server that does not exist."""
    await redis.execute_command("REPLICAOF", "127.0.0.1", "1")


async def paused(redis: Any) -> None:
    """Let writes wait."""
    await redis.execute_command("CLIENT", "PAUSE", "60000", "WRITE")


async def wrong_type(redis: Any) -> None:
    """Replace the queue by a string."""
    await redis.delete(QUEUE)
    await redis.set(QUEUE, "not a sorted set")


async def healed(redis: Any) -> None:
    """Undo all of these; a queue of the wrong type is deleted."""
    await redis.execute_command("CLIENT", "UNPAUSE")
    await redis.execute_command("REPLICAOF", "NO", "ONE")
    await redis.config_set("maxmemory", "0")
    if await redis.type(QUEUE) == b"string":
        await redis.delete(QUEUE)


# By the name that Carillon reports.
REFUSALS: dict[str, Refusal] = {"full": full, "read_only": replica, "timeout": paused, "wrong_type": wrong_type}
