"""Which server answers, and on which timeline: what was cached from another one may be about commits that are lost.

Rows are cached by their version, the transaction that wrote them last. After a failover to a standby that had not
received the last commits, Postgres gives the same numbers to other transactions: a version no longer says what a row
holds, and everything that was cached by versions has to go.
"""

from typing import Any, Protocol, TypeVar
from weakref import WeakSet

import asyncpg
import structlog

log = structlog.get_logger(__name__)

# A promotion begins a new timeline, another cluster has another identifier, and a data folder that was put back from a
# copy has a server that was started since. Each question is there for roles, and managed servers, that may not ask
# the one before.
_TIMELINE = "CASE WHEN pg_is_in_recovery() THEN 'standby' ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END"
_STARTED = "pg_postmaster_start_time()"
_QUESTIONS = (
    f"SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()), {_TIMELINE}, {_STARTED})",  # noqa: S608
    f"SELECT concat_ws('/', {_TIMELINE}, {_STARTED})",
    f"SELECT concat_ws('/', {_STARTED})",
)
_MAY_NOT_ASK = (asyncpg.InsufficientPrivilegeError, asyncpg.FeatureNotSupportedError, asyncpg.UndefinedFunctionError)


class Clearable(Protocol):
    """Something that is kept by the versions of rows."""

    def clear(self) -> None:
        """Forget all of it."""


C = TypeVar("C", bound=Clearable)


class ServerHistory:
    """Notices that another server, or another timeline of it, answers, and has all caches dropped."""

    def __init__(self) -> None:
        """Nobody has answered yet."""
        self._known: str | None = None
        self._caches: WeakSet[Clearable] = WeakSet()
        # Which of the questions this role may ask.
        self._first_question = 0

    def watch(self, cache: C) -> C:
        """Have this cache dropped whenever the history changes."""
        self._caches.add(cache)
        return cache

    async def check(self, driver: Any) -> None:
        """Compare the server behind a connection with the one that answered before."""
        found = await self._ask(driver)
        if self._known is not None and found != self._known:
            log.warning("server_history_changed", before=self._known, after=found)
            for cache in self._caches:
                cache.clear()
        self._known = found

    async def _ask(self, driver: Any) -> str:
        while True:
            try:
                answer: str = await driver.fetchval(_QUESTIONS[self._first_question])
            except _MAY_NOT_ASK:
                if self._first_question + 1 == len(_QUESTIONS):
                    raise
                self._first_question += 1
            else:
                return answer
