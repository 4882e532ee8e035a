"""Delivery of notifications: apart from ticks, and retried until they arrive or are given up."""

import asyncio
from typing import Any

import msgspec
import structlog

from app import clock
from app.actions.http_client import Answer, CallFailedError, HttpCaller, Sender
from app.domain.backoff import DELIVERY_BACKOFF
from app.domain.trigger_event import rfc3339
from app.persistence import notifications
from app.persistence.database import Database
from app.persistence.notifications import Bounds, Delivery, SentNotice

# Deliveries under way: one owner cannot use up those of a host, and targets that hang cannot use up all.
BOUNDS = Bounds(in_all=200, per_owner=5, per_host=10)
MOST_ATTEMPTS = 8
LEASE_SECONDS = 60.0
CALL_SECONDS = 15.0
# How often it looks for due deliveries while others are under way and none of them ends.
LOOK_SECONDS = 1.0
# How long a ping of the cron endpoint waits for deliveries. Those that take longer go on after it.
PING_SECONDS = 5.0
CLOSE_SECONDS = 1.0

log = structlog.get_logger(__name__)


class NotificationSender:
    """Takes due deliveries from Postgres and sends them."""

    def __init__(self, database: Database, http: HttpCaller) -> None:
        """Send with this client, which signs a call if its sender has a key."""
        self._database = database
        self._http = http
        self._under_way: dict[asyncio.Task[None], Delivery] = {}
        self._errors: list[BaseException] = []

    async def run_once(self) -> int:
        """Begin due deliveries and wait until one of them ends. Return how many were under way."""
        await self._begin_due()
        busy = len(self._under_way)
        if busy:
            await asyncio.wait(self._under_way, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        return busy

    async def run_all(self, seconds: float) -> int:
        """Begin due deliveries and wait for all, at most ``seconds``. Return how many were begun."""
        begun, ends_at = 0, clock.monotonic() + seconds
        while (left := ends_at - clock.monotonic()) > 0:
            begun += await self._begin_due()
            if not self._under_way:
                break
            await asyncio.wait(self._under_way, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        return begun

    async def close(self) -> None:
        """Cancel what is under way. Another worker sends it when its lease ends."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=CLOSE_SECONDS)
        left = set(self._under_way)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    async def _begin_due(self) -> int:
        """Begin due deliveries within the bounds. Return how many.

        An unexpected error of a delivery that has ended is raised here, where the loop of the worker logs it.
        """
        if self._errors:
            raise self._errors.pop()
        if len(self._under_way) >= BOUNDS.in_all:
            return 0
        async with self._database.transaction() as connection:
            due = await notifications.take_due(connection, BOUNDS, self._under_way.values(), LEASE_SECONDS)
        for delivery in due:
            task = asyncio.create_task(self._deliver(delivery))
            self._under_way[task] = delivery
            task.add_done_callback(self._ended)
        return len(due)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._errors = [error]

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            answer = await self._call(delivery)
        except (CallFailedError, TimeoutError) as error:
            await self._failed(delivery, str(error) or "The target did not answer in time.")
            return
        if 200 <= answer.status < 300:  # noqa: PLR2004 - any 2xx
            async with self._database.transaction() as connection:
                await notifications.delivered(connection, delivery, answer.status)
        else:
            await self._failed(delivery, f"The target answered {answer.status}.")

    async def _call(self, delivery: Delivery) -> Answer:
        headers = {"Content-Type": "application/json"}
        message_id = f"notice.{delivery.ids[0]}.{delivery.attempts}"
        sender = Sender(delivery.owner_id, is_operators=delivery.is_operators)
        body = msgspec.json.encode(_body(delivery))
        async with asyncio.timeout(CALL_SECONDS):
            return await self._http.call("POST", delivery.url, headers, body, message_id, sender)

    async def _failed(self, delivery: Delivery, error: str) -> None:
        async with self._database.transaction() as connection:
            given_up = await notifications.not_delivered(connection, delivery, error, DELIVERY_BACKOFF, MOST_ATTEMPTS)
        log.warning(
            "notification_failed",
            delivery=delivery.ids[0],
            notices=len(delivery.ids),
            error=error,
            given_up=given_up,
        )


def _body(delivery: Delivery) -> dict[str, Any]:
    """Return the JSON to send: one notification, or a digest of several."""
    if len(delivery.ids) == 1:
        return _notice(delivery.notices[0])
    events = [_notice(notice) for notice in delivery.notices]
    data = {"count": len(delivery.ids), "events": events}
    return {"type": "digest", "timestamp": rfc3339(delivery.created_at), "data": data}


def _notice(notice: SentNotice) -> dict[str, Any]:
    return {"type": notice.event, "timestamp": rfc3339(notice.created_at), "data": notice.data}
