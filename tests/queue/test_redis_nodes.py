"""Redis with Sentinels and Redis Cluster, with real servers: the queue goes on when another server has the keys.

Covers app.queue.redis_nodes.
"""

import asyncio
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from redis.crc import key_slot

from app import clock
from app.config import SettingsError
from app.engine.queue_port import EXECUTE, Delivered, QueueUnavailableError, Wake
from app.queue.bell import Bell, RedisPool, open_pool
from app.queue.message_format import EPOCH_KEY, QUEUE
from app.queue.rate_counter import RedisCounter
from app.queue.redis_nodes import CLUSTER_PREFIX, HASH_SLOT, LocatedConnection, LocatedPool, Locator
from app.queue.worker import QueueWorker, stock_arq_settings
from tests.support.carillon import until
from tests.support.redis_servers import PASSWORD, RedisServer, Switchable, cluster, tls_cluster
from tests.support.tls_front import Authority

SCHEDULE = "01234567-89ab-4cde-8f01-23456789abcd"


def wake(number: int, seconds: float = 0) -> Wake:
    """The message of a tick."""
    return Wake(f"m{number}", EXECUTE, (SCHEDULE, number), clock.now() + timedelta(seconds=seconds))


async def rung(bell: Bell, number: int) -> bool:
    """Ring once the queue takes messages; return whether the message was new."""

    async def ring() -> list[bool] | None:
        with suppress(QueueUnavailableError):
            return await bell.ring([wake(number)], clock.now())
        return None

    (is_new,) = await until(ring)
    return is_new


async def delivered(redis: RedisPool, wakes: list[Wake]) -> list[int]:
    """Ring, let a worker deliver, and return which messages came."""
    came: list[int] = []

    async def handle(_delivered: Delivered, _schedule: str, generation: int) -> None:
        came.append(generation)

    worker = QueueWorker(redis, {EXECUTE: handle}, concurrency=10, lease_seconds=30, on_cancel=lambda _id: None)
    running = asyncio.create_task(worker.run())
    await Bell(redis).ring(wakes, clock.now())

    async def all_came() -> bool:
        return len(came) >= len(wakes)

    await until(all_came)
    worker.stop()
    await running
    await worker.finished()
    return sorted(came)


async def test_the_next_master_is_found_by_its_sentinel(tmp_path: Path) -> None:
    """The first Sentinel of the URL is gone, and so is the master after a while."""
    async with Switchable(tmp_path) as servers:
        redis = open_pool(servers.url)
        bell = Bell(redis)
        assert [1] == await delivered(redis, [wake(1)])
        assert [True] == await bell.ring([wake(2, 3600)], clock.now())
        await (await servers.master()).ask("WAIT", 1, 1000)
        await servers.switch()
        # Replicated before the switch.
        assert not await rung(bell, 2)
        assert await rung(bell, 3)
        await redis.aclose()


class Told(Locator):
    """Returns the server that the test names."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server

    async def locate(self) -> tuple[str, int]:
        """Return its address."""
        return "127.0.0.1", self.server.port

    async def close(self) -> None:
        """Hold nothing."""


async def test_a_master_that_was_demoted_is_left(tmp_path: Path) -> None:
    """It still answers, and refuses writes: its connection is closed, and the next one goes to the new master."""
    async with RedisServer(tmp_path) as old, RedisServer(tmp_path) as new:
        locator = Told(old)
        redis = RedisPool(LocatedPool(locator, connection_class=LocatedConnection))
        redis.auto_close_connection_pool = True
        bell = Bell(redis)
        assert [True] == await bell.ring([wake(1)], clock.now())
        await old.ask("REPLICAOF", "127.0.0.1", new.port)
        locator.server = new
        with pytest.raises(QueueUnavailableError, match="Another server has the keys"):
            await bell.ring([wake(2)], clock.now())
        assert [True] == await bell.ring([wake(2)], clock.now())
        assert 1 == await new.ask("ZCARD", QUEUE)
        await redis.aclose()


async def leave_a_replica(owner: RedisServer, replica: RedisServer) -> None:
    """A node that says that the keys have moved is left: the next connection asks again where they are."""
    locator = Told(replica)
    redis = RedisPool(LocatedPool(locator, connection_class=LocatedConnection))
    redis.auto_close_connection_pool = True
    redis.key_prefix = CLUSTER_PREFIX
    with pytest.raises(QueueUnavailableError, match="MOVED"):
        await Bell(redis).ping()
    locator.server = owner
    await Bell(redis).ping()
    await redis.aclose()


async def test_all_keys_of_a_cluster_are_on_one_node(tmp_path: Path) -> None:
    """Ringing, delivering, counting and publishing work as on one server, also after the owner of the keys is gone."""
    async with cluster(tmp_path) as (owner, replica):
        await leave_a_replica(owner, replica)
        # Only the replica is named: it knows the owner.
        redis = open_pool(f"redis+cluster://127.0.0.1:1,127.0.0.1:{replica.port}")
        bell = Bell(redis)
        assert [*range(20)] == await delivered(redis, [wake(number) for number in range(20)])
        assert [True] == await bell.ring([wake(100, 3600)], clock.now())
        await bell.begin_refill()
        assert await bell.finish_refill()
        await bell.ping()
        assert 0 == await RedisCounter(redis).count("a", 1, 60)
        names = {key.decode() for key in await owner.ask("KEYS", "*")}
        assert {HASH_SLOT} == {key_slot(name.encode()) for name in names}
        assert {CLUSTER_PREFIX + name for name in (QUEUE, EPOCH_KEY, "arq:job:m100", "a")} <= names

        await owner.ask("WAIT", 1, 1000)
        await owner.kill()
        await replica.ask("CLUSTER", "FAILOVER", "TAKEOVER")
        assert not await rung(bell, 100)
        assert await bell.is_intact()
        assert [101] == await delivered(redis, [wake(101)])
        await redis.aclose()


async def test_a_cluster_with_tls_and_a_password(tmp_path: Path) -> None:
    """Both the node that is asked and the one that has the keys are verified by the authority of the URL."""
    authority = Authority(tmp_path)
    async with tls_cluster(tmp_path, authority.issue("localhost")) as port:
        url = f"rediss+cluster://:{PASSWORD}@127.0.0.1:{port}?ssl_ca_certs={{}}"
        redis = open_pool(url.format(authority.certificate))
        assert [1] == await delivered(redis, [wake(1)])
        await redis.aclose()
        wrong = open_pool(url.format(Authority(tmp_path, "other").certificate))
        with pytest.raises(QueueUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            await Bell(wrong).ping()
        await wrong.aclose()


async def test_a_cluster_that_is_away_is_one_kind_of_error() -> None:
    """Each node that was asked is named."""
    redis = open_pool("redis+cluster://127.0.0.1:1,127.0.0.1:2")
    with pytest.raises(QueueUnavailableError, match=r"127\.0\.0\.1:1: .*127\.0\.0\.1:2: "):
        await Bell(redis).ping()
    await redis.aclose()


def test_stock_arq_is_refused_on_a_cluster() -> None:
    """Its keys have no hash tag."""
    with pytest.raises(SettingsError, match="CARILLON_REDIS_URL names a Redis Cluster"):
        stock_arq_settings("redis+cluster://127.0.0.1:1", None, 10)  # type: ignore[arg-type]  # not looked at
