"""The cron ping: whoever has its token drives the schedules."""

import hmac

from app.domain.errors import UnauthenticatedError
from app.engine.cron_ping import Pinged, Pinger


class CronService:
    """Lets a ping in, and carries it out."""

    def __init__(self, pinger: Pinger, token: str) -> None:
        """Without a token nobody is let in."""
        self._pinger = pinger
        self._token = token

    async def run(self, token: str | None) -> Pinged:
        """Fire whatever is due now."""
        if not self._token or not hmac.compare_digest((token or "").encode(), self._token.encode()):
            raise UnauthenticatedError
        return await self._pinger.ping()
