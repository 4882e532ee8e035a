"""What breaks things: seeded, one fault after another, each written down with when it began and ended."""

import asyncio
import random
import shutil
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import asyncpg
from redis.exceptions import RedisError

from app.embedded.errors import ServerDidNotStart
from app.failpoints import POINTS
from tests.chaos.deployment import AWAY, Deployment
from tests.chaos.evidence import Fault
from tests.chaos.members import Member
from tests.chaos.proxy import Proxy
from tests.chaos.target import Mood
from tests.support.redis_refusals import QUEUE, REFUSALS, healed

LIBRARY = "vendor/libfaketime/src/libfaketime.so.1"

Act = Callable[[], Awaitable[None]]


class Nemesis:
    """Chooses faults by its seed, and heals each before the next."""

    def __init__(self, deployment: Deployment, seed: int, *, lease_seconds: float, herd: int) -> None:
        """Nothing is broken yet."""
        self._deployment = deployment
        self._random = random.Random(seed)
        self._lease_seconds = lease_seconds
        self._herd = herd
        self.faults: list[Fault] = []
        self._acts: dict[str, Act] = {
            "kill a worker": lambda: self._kill(self._worker()),
            "kill an api": lambda: self._kill(self._random.choice(self._deployment.apis)),
            "kill postgres": lambda: self._deployment.restart_server(self._deployment.postgres, signal.SIGKILL),
            "restart postgres at once": lambda: self._deployment.restart_server(
                self._deployment.postgres, signal.SIGQUIT
            ),
            "postgres fails over": self._deployment.fail_over_postgres,
            "kill valkey": lambda: self._deployment.restart_server(self._deployment.valkey, signal.SIGKILL),
            "valkey away": self._valkey_away,
            "valkey restarted empty": self._valkey_empty,
            "an old snapshot of valkey": self._valkey_snapshot,
            "flush": self._flush,
            "pause valkey's clients": self._client_pause,
            **{f"valkey refuses writes: {kind}": partial(self._refuse, kind) for kind in REFUSALS},
            "garbage in valkey": self._garbage,
            "die at a named point": self._failpoint,
            "stop a worker beyond its lease": self._stop_beyond_lease,
            "stop an api": self._stop_api,
            "restart all workers, one by one": self._rolling_restart,
            "terminate backends": self._terminate_backends,
            "hold locks": self._hold_locks,
            "read-only": self._read_only,
            "delay": self._delay,
            "swallow": self._swallow,
            "reset": self._reset,
            "cut": self._cut,
            "bad target": self._bad_target,
            "clock off": self._clock_off,
            "poison": self._poison,
            "herd": self._stampede,
        }

    async def rage(self, seconds: float) -> None:
        """Break things for so long, two at a time; every kind once before any comes again."""
        self._names: list[str] = []
        deadline = asyncio.get_running_loop().time() + seconds
        await asyncio.gather(self._strand(deadline), self._strand(deadline))
        for proxy in self._deployment.proxies.values():
            proxy.heal()

    async def _strand(self, deadline: float) -> None:
        while asyncio.get_running_loop().time() < deadline:
            self._names = self._names or self._random.sample(sorted(self._acts), len(self._acts))
            await self._commit(self._names.pop())
            await asyncio.sleep(self._random.uniform(0.2, 1.5))

    async def _commit(self, name: str) -> None:
        """One fault. What is in the way because of another one, a server that is just down, is no matter."""
        began = datetime.now(UTC)
        try:
            await self._acts[name]()
        except (*AWAY, RedisError, ServerDidNotStart):
            await self._deployment.sql_patiently("SELECT 1")
        finally:
            self.faults.append(Fault(name, began, datetime.now(UTC)))

    def _worker(self) -> Member:
        return self._random.choice(self._deployment.workers)

    def _while(self) -> float:
        """For how long something stays broken."""
        return self._random.uniform(0.5, 4.0)

    async def _kill(self, member: Member) -> None:
        await member.restart(signal.SIGKILL)

    async def _valkey_away(self) -> None:
        await self._deployment.restart_server(self._deployment.valkey, signal.SIGKILL, self._while() + 3)

    async def _valkey_empty(self) -> None:
        def empty() -> None:
            shutil.rmtree(self._deployment.valkey.data_dir / "appendonlydir", ignore_errors=True)

        await self._deployment.restart_server(self._deployment.valkey, signal.SIGKILL, between=empty)

    async def _valkey_snapshot(self) -> None:
        """As it was a few seconds ago: what was queued since is gone, what was done since is queued again."""
        folder, saved = self._deployment.valkey.data_dir, self._deployment.folder / "snapshot"
        shutil.rmtree(saved, ignore_errors=True)
        shutil.copytree(folder / "appendonlydir", saved, dirs_exist_ok=True)
        await asyncio.sleep(self._while() + 2)

        def restore() -> None:
            data = self._deployment.valkey.data_dir
            shutil.rmtree(data / "appendonlydir", ignore_errors=True)
            shutil.copytree(saved, data / "appendonlydir")
            owner = data.stat()
            for path in (data / "appendonlydir", *(data / "appendonlydir").iterdir()):
                shutil.chown(path, owner.st_uid, owner.st_gid)

        await self._deployment.restart_server(self._deployment.valkey, signal.SIGKILL, between=restore)

    async def _flush(self) -> None:
        async with self._deployment.redis() as redis:
            await redis.flushall()

    async def _client_pause(self) -> None:
        milliseconds = int(self._while() * 1000)
        async with self._deployment.redis() as redis:
            await redis.client_pause(milliseconds, all=True)
        await asyncio.sleep(milliseconds / 1000)

    async def _refuse(self, kind: str) -> None:
        """It answers every read and takes no write."""
        async with self._deployment.redis() as redis:
            await REFUSALS[kind](redis)
            try:
                await asyncio.sleep(self._while() + 2)
            finally:
                await healed(redis)

    async def _garbage(self) -> None:
        async with self._deployment.redis() as redis:
            members = [b"no-body", b"not-msgpack", b"a set", b"sched-x-n0-rc0-g0", b"\xff\xfe"]
            await redis.zadd(QUEUE, {member: score for score, member in enumerate(members)})
            await redis.set("arq:job:not-msgpack", b"\xc1\x00garbage")
            await redis.zadd("arq:job:a set", {"x": 1})
            await redis.set("arq:job:sched-x-n0-rc0-g0", b"\x80")
        await asyncio.sleep(0.5)
        async with self._deployment.redis() as redis:
            await redis.rename(QUEUE, "aside") if await redis.exists(QUEUE) else None
            await redis.set(QUEUE, "not a sorted set")
            await asyncio.sleep(self._while())
            await redis.delete(QUEUE)

    async def _failpoint(self) -> None:
        member, point = self._worker(), self._random.choice(sorted(POINTS))
        member.extra = {"CARILLON_FAILPOINTS": f"{point}=0.2"}
        await member.restart(signal.SIGKILL)
        await asyncio.sleep(self._while() + 3)
        member.extra = {}
        await member.restart(signal.SIGKILL)

    async def _stop_beyond_lease(self) -> None:
        member = self._worker()
        member.send(signal.SIGSTOP)
        await asyncio.sleep(self._lease_seconds + self._while())
        member.send(signal.SIGCONT)

    async def _stop_api(self) -> None:
        member = self._random.choice(self._deployment.apis)
        member.send(signal.SIGSTOP)
        await asyncio.sleep(self._while())
        member.send(signal.SIGCONT)

    async def _rolling_restart(self) -> None:
        for member in self._deployment.workers:
            await member.restart(signal.SIGTERM)
            await asyncio.sleep(1)

    async def _terminate_backends(self) -> None:
        for _ in range(self._random.randint(1, 4)):
            with suppress(asyncpg.PostgresError, OSError):
                await self._deployment.sql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
                )
            await asyncio.sleep(self._random.uniform(0.1, 0.8))

    async def _hold_locks(self) -> None:
        connection = await asyncpg.connect(
            host=str(self._deployment.postgres.socket_folder), user="carillon", database="carillon"
        )
        async with connection.transaction():
            table = self._random.choice(("scheduled_jobs", "workflow_executions", "workflows", "workers"))
            await connection.execute(f"SELECT 1 FROM {table} ORDER BY random() LIMIT 10 FOR UPDATE")
            await asyncio.sleep(self._while())
        await connection.close()

    async def _read_only(self) -> None:
        await self._deployment.sql("ALTER SYSTEM SET default_transaction_read_only = on")
        await self._deployment.sql("SELECT pg_reload_conf()")
        await asyncio.sleep(self._while())
        await self._deployment.sql_patiently("ALTER SYSTEM RESET default_transaction_read_only")
        await self._deployment.sql_patiently("SELECT pg_reload_conf()")

    def _link(self) -> Proxy:
        return self._deployment.proxies[self._random.choice(sorted(self._deployment.proxies))]

    async def _delay(self) -> None:
        link = self._link()
        link.delay = self._random.uniform(0.05, 0.5)
        await asyncio.sleep(self._while())
        link.heal()

    async def _swallow(self) -> None:
        link = self._link()
        link.swallow()
        await asyncio.sleep(self._while() + self._random.choice((0, self._lease_seconds)))
        link.heal()

    async def _reset(self) -> None:
        link = self._link()
        link.refusing = True
        link.reset()
        await asyncio.sleep(self._while())
        link.heal()

    async def _cut(self) -> None:
        for _ in range(5):
            self._link().cut_after = self._random.randint(1, 2000)
            await asyncio.sleep(self._random.uniform(0.1, 0.6))

    async def _bad_target(self) -> None:
        self._deployment.target.feel(self._random.choice([mood for mood in Mood if mood is not Mood.KIND]))
        await asyncio.sleep(self._while())
        self._deployment.target.feel(Mood.KIND)

    async def _clock_off(self) -> None:
        """A worker whose clock is half a minute or an hour off; where the library cannot be had, nothing."""
        library = _faketime()
        if library is None:
            return
        member = self._worker()
        offset = self._random.choice(("+30", "-30", "+3600", "-3600"))
        member.extra = {"LD_PRELOAD": library, "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        await member.restart(signal.SIGTERM)
        await asyncio.sleep(self._while() + 2)
        member.extra = {}
        await member.restart(signal.SIGTERM)

    async def _poison(self) -> None:
        """Plan an attempt that no constraint lets begin."""
        await self._deployment.sql(
            "UPDATE scheduled_jobs SET next_attempt = -1 WHERE id = (SELECT id FROM scheduled_jobs "
            "WHERE name LIKE 'poison-%' AND status_reason = '' AND next_attempt >= 0 LIMIT 1)"
        )

    async def _stampede(self) -> None:
        """Many ticks that are due at once."""
        columns = [
            row["column_name"]
            for row in await self._deployment.sql(
                "SELECT column_name FROM information_schema.columns WHERE table_name = 'scheduled_jobs' "
                "AND table_schema = 'public' ORDER BY ordinal_position"
            )
        ]
        times = ("next_slot", "next_run_at", "cadence_slot", "anchor_at")
        kept = ", ".join(name for name in columns if name not in {"id", "name", "status", "status_reason", *times})
        await self._deployment.sql(
            f"INSERT INTO scheduled_jobs (id, name, status, status_reason, {', '.join(times)}, {kept}) "
            f"SELECT gen_random_uuid(), 'herd', 'active', '', t.moment, t.moment, t.moment, t.moment, {kept} "
            "FROM scheduled_jobs, generate_series(1, $1), "
            "(SELECT clock_timestamp() - interval '1 second' AS moment) AS t "
            "WHERE name = 'herd-mother'",
            self._herd,
        )


def _faketime() -> str | None:
    try:
        import libfaketime
    except ImportError:
        return None
    library = Path(libfaketime.__file__).parent / LIBRARY
    return str(library) if library.exists() else None
