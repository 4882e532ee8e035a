"""A Redis in memory: as much of it as the bell and the queue's worker use, with the meaning of their scripts."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from io import BytesIO
from typing import Any

from redis.exceptions import ConnectionError as RedisAwayError

from app.queue.lua_scripts import CLAIM, FINISH, PROBE, PUT_BACK, RING
from app.queue.message_format import WAKE_CHANNEL, deserialize
from tests.simulation.faults import Fault
from tests.simulation.processes import Process, Stage

Script = Callable[[Sequence[Any]], Any]


class SimulatedRedis:
    """What is stored, and what can happen to it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.away = False
        self.queue: dict[bytes, int] = {}
        self.bodies: dict[bytes, bytes] = {}
        # Messages that were delivered and ended: they may come once more.
        self.ended: dict[bytes, bytes] = {}
        self.listeners: list[_Listener] = []
        self._keys: set[str] = set()
        self._in_progress: dict[bytes, tuple[str, int]] = {}
        self.scripts: dict[str, tuple[str, Script]] = {
            RING: ("ring", self._ring),
            CLAIM: ("deliver", self._claim),
            FINISH: ("finish", self._finish),
            PUT_BACK: ("put back", self._put_back),
            PROBE: ("", lambda _args: 1),
        }

    def flush(self) -> None:
        """Everything is gone."""
        for store in (self.queue, self.bodies, self._keys, self._in_progress):
            store.clear()

    def has(self, key: str) -> bool:
        """Whether there is such a key."""
        return key in self._keys

    def set(self, key: str) -> None:
        """Write a key, whatever its value."""
        self._keys.add(key)

    def lose(self, name: bytes) -> None:
        """One message is gone."""
        del self.queue[name]

    def repeat(self, name: bytes) -> None:
        """A message that has had its end comes once more."""
        self.queue[name], self.bodies[name] = self._now(), self.ended[name]

    def delay(self, name: bytes, seconds: float) -> None:
        """A message comes later than it should, or sooner."""
        self.queue[name] = self._now() + int(seconds * 1000)

    def publish(self, channel: str, data: str = "") -> None:
        """Tell whoever listens."""
        for listener in self.listeners:
            listener.heard.put_nowait({"channel": channel.encode(), "data": data.encode()})

    def _now(self) -> int:
        return int(self.stage.now().timestamp() * 1000)

    def _ring(self, args: Sequence[Any]) -> list[int]:
        answers, earliest = [], min(self.queue.values(), default=None)
        given, bodies = deserialize(args[0]), BytesIO(args[1])
        for at in range(0, len(given), 5):
            name, score, _time_to_live, length, replaced = given[at : at + 5]
            body = bodies.read(length)
            key = name.encode()
            if key in self.queue and key in self.bodies:
                answers.append(0)
            else:
                self.queue[key], self.bodies[key] = score, body
                answers.append(1)
            self._end(replaced.encode())
        if earliest is None or min(self.queue.values()) < earliest:
            self.publish(WAKE_CHANNEL)
        return answers

    def _claim(self, args: Sequence[Any]) -> list[Any]:
        owner, lease, limit = args
        now = self._now()
        due = sorted((score, name) for name, score in self.queue.items() if score <= now)
        claimed: list[bytes] = []
        for _score, name in due[:limit]:
            if name not in self.bodies:
                del self.queue[name]
                continue
            self.queue[name] = now + lease
            if self._in_progress.get(name, ("", 0))[1] <= now:
                self._in_progress[name] = (owner, now + lease)
                claimed += (name, self.bodies[name])
        return [claimed, max(0, min(self.queue.values()) - now) if self.queue else -1]

    def _is_owner(self, owner: str, name: bytes) -> bool:
        holder, until = self._in_progress.get(name, ("", 0))
        return holder == owner and until > self._now()

    def _finish(self, args: Sequence[Any]) -> int:
        owner, lengths, joined = args
        names = map(BytesIO(joined).read, deserialize(lengths))
        finished = [name for name in names if self._is_owner(owner, name)]
        for name in finished:
            self._end(name)
        return len(finished)

    def _end(self, name: bytes) -> None:
        if name in self.bodies:
            self.ended[name] = self.bodies.pop(name)
        self._in_progress.pop(name, None)
        self.queue.pop(name, None)

    def _put_back(self, args: Sequence[Any]) -> int:
        owner, name, milliseconds = args
        key = name
        if not self._is_owner(owner, key):
            return 0
        if key in self.queue:
            self.queue[key] = self._now() + milliseconds
        del self._in_progress[key]
        self.publish(WAKE_CHANNEL)
        return 1


class RedisClient:
    """The connections of one process."""

    def __init__(self, redis: SimulatedRedis, process: Process) -> None:
        self.redis = redis
        self.process = process

    def register_script(self, script: str) -> Callable[..., Awaitable[Any]]:
        """A script, to be called with its keys and arguments."""
        name, act = self.redis.scripts[script]

        async def call(keys: Sequence[str], args: Sequence[Any]) -> Any:
            if not name:
                # The probe comes twice a second: it takes no turn of its own in a history.
                self._require()
                return act(args)
            return await self._do(name, lambda: act(args))

        return call

    @staticmethod
    def key(name: str) -> str:
        """The name of a key."""
        return name

    async def info(self, _section: str) -> dict[str, str]:
        """It evicts nothing."""
        self._require()
        return {}

    async def publish(self, channel: str, data: str) -> None:
        """Tell whoever listens."""
        await self._do("call off", lambda: self.redis.publish(channel, data))

    async def exists(self, key: str) -> bool:
        """Whether there is such a key."""
        found: bool = await self._do("remembers", lambda: self.redis.has(key))
        return found

    async def set(self, key: str, _value: str) -> None:
        """Write a key."""
        await self._do("begin epoch", lambda: self.redis.set(key))

    def pubsub(self) -> "_Listener":
        """Somebody to listen."""
        return _Listener(self)

    async def _do(self, name: str, act: Callable[[], Any]) -> Any:
        """Ask, and hear the answer: either can fail."""
        await self._reach(f"{name}: asks Redis")
        answer = act()
        await self._reach(f"{name}: hears Redis")
        return answer

    async def _reach(self, where: str) -> None:
        fault = await self.redis.stage.reach(self.process, where)
        if fault is Fault.AWAY:
            raise RedisAwayError("Redis is away")
        self._require()

    def _require(self) -> None:
        if self.redis.away:
            raise RedisAwayError("Redis is away")


class _Listener:
    """Hears what is published, as long as Redis is there."""

    def __init__(self, client: RedisClient) -> None:
        self._redis = client.redis
        self.heard: asyncio.Queue[dict[str, bytes]] = asyncio.Queue()

    async def subscribe(self, *_channels: str) -> None:
        """Begin to listen."""
        self._require()
        self._redis.listeners.append(self)

    async def get_message(self, *, timeout: float, **_options: bool) -> dict[str, bytes] | None:  # noqa: ASYNC109
        """What was said next, if it was said in time."""
        self._require()
        with suppress(TimeoutError):
            return await asyncio.wait_for(self.heard.get(), timeout)
        return None

    async def aclose(self) -> None:
        """Listen no more."""
        if self in self._redis.listeners:
            self._redis.listeners.remove(self)

    def _require(self) -> None:
        if self._redis.away:
            raise RedisAwayError("Redis is away")
