"""Delivering notices: beside the ticks, never within one; again and again until they arrive or are given up."""

import asyncio
from datetime import timedelta

import msgspec
import structlog

from app import clock
from app.actions.http import Answer, CallFailedError, HttpCaller
from app.domain.events import rfc3339
from app.persistence import notices
from app.persistence.database import Database
from app.persistence.notices import Delivery

PAGE = 50
LEASE_SECONDS = 60.0
CALL_SECONDS = 15.0
MOST_ATTEMPTS = 8
FIRST_PAUSE_SECONDS = 5
LONGEST_PAUSE_SECONDS = 3600

log = structlog.get_logger(__name__)


class Postman:
    """Takes what is due and brings it where it belongs."""

    def __init__(self, database: Database, http: HttpCaller) -> None:
        """Call with this client, which signs where there is a secret."""
        self._database = database
        self._http = http

    async def run_once(self) -> int:
        """One round; how many deliveries were tried."""
        async with self._database.transaction() as connection:
            due = await notices.take_due(connection, PAGE, LEASE_SECONDS)
        await asyncio.gather(*(self._deliver(delivery) for delivery in due))
        return len(due)

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            answer = await self._call(delivery)
        except (CallFailedError, TimeoutError) as error:
            await self._failed(delivery, str(error) or "The target did not answer in time.")
            return
        if 200 <= answer.status < 300:  # noqa: PLR2004 - any 2xx
            async with self._database.transaction() as connection:
                await notices.delivered(connection, delivery, answer.status, clock.now())
        else:
            await self._failed(delivery, f"The target answered {answer.status}.")

    async def _call(self, delivery: Delivery) -> Answer:
        body = {"type": delivery.event, "timestamp": rfc3339(delivery.created_at), "data": delivery.data}
        headers = {"Content-Type": "application/json"}
        async with asyncio.timeout(CALL_SECONDS):
            return await self._http.call(
                "POST", delivery.url, headers, msgspec.json.encode(body), f"carillon-notice-{delivery.id}"
            )

    async def _failed(self, delivery: Delivery, error: str) -> None:
        given_up = delivery.attempts >= MOST_ATTEMPTS
        pause = min(FIRST_PAUSE_SECONDS * 2 ** (delivery.attempts - 1), LONGEST_PAUSE_SECONDS)
        again = None if given_up else clock.now() + timedelta(seconds=pause)
        log.warning("notice_not_delivered", delivery=delivery.id, error=error, given_up=given_up)
        async with self._database.transaction() as connection:
            await notices.not_delivered(connection, delivery, error, again)
