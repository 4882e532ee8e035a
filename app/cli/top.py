"""``carillon top``: rates, lateness, due slots, workers and what needs attention, each second."""

import sys
from collections import deque
from collections.abc import Mapping
from typing import Annotated, Any

from cyclopts import Parameter

from app import clock
from app.cli.options import REACH, Reach
from app.cli.output import cell, cell_width, colour, printable, write
from app.client.connection import Connection
from app.client.errors import ClientError

REFRESH_SECONDS = 10.0
HISTORY = 60
MOST_ROWS = 10
BLOCKS = "▁▂▃▄▅▆▇█"


def top(
    *,
    once: Annotated[bool, Parameter(negative="", help="Print one picture and exit.")] = False,
    options: Reach = REACH,
) -> None:
    """Show what happens, once a second, until you stop it."""
    with options.connect() as connection, options.connect() as other:
        picture = Picture(other)
        pulses = connection.events("/live/")
        if once or not sys.stdout.isatty():
            for pulse in pulses:
                write(picture.after(pulse))
                if once:
                    return
        else:
            _show(picture, pulses)
    raise ClientError("The server has ended the stream.", hint="Start the command again.")


def _show(picture: "Picture", pulses: Any) -> None:
    """Draw each picture over the one before, on a screen of its own."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(), screen=True, auto_refresh=False) as live:
        for pulse in pulses:
            live.update(Text.from_ansi(picture.after(pulse)), refresh=True)


class Picture:
    """What is shown: the newest pulse, the last minute of due slots, and the overview of some seconds ago."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._running: deque[float] = deque(maxlen=HISTORY)
        self._due: deque[float] = deque(maxlen=HISTORY)
        self._overview: Any = None
        self._read_at = 0.0

    def after(self, pulse: Mapping[str, Any]) -> str:
        """Return the picture after one more pulse."""
        now = clock.monotonic()
        if self._overview is None or now - self._read_at > REFRESH_SECONDS:
            self._overview, self._read_at = self._connection.get("/overview/"), now
        self._running.append(pulse["running"])
        self._due.append(pulse["due"])
        return "\n".join([*self._figures(pulse), "", *self._health(), "", *self._attention()]) + "\n"

    def _figures(self, pulse: Mapping[str, Any]) -> list[str]:
        fired = sum(pulse["outcomes"].get(name, 0) for name in ("fired", "queued"))
        others = ", ".join(f"{name} {count:,}" for name, count in pulse["outcomes"].items() if name != "fired")
        state = "" if pulse["schedules_enabled"] else "   ALL SCHEDULES ARE SWITCHED OFF"
        lateness = " / ".join("-" if pulse[name] is None else f"{pulse[name]:,.0f}" for name in ("p50_ms", "p99_ms"))
        return [
            f"{self._connection.target.url}  {cell(pulse['at'])}  mode {pulse['mode']}{state}",
            f"fired     {fired / 60:,.1f}/s in the last minute{'   ' + others if others else ''}",
            f"lateness  {lateness} ms (p50 / p99)   oldest overdue {pulse['oldest_overdue_seconds']:,.1f} s",
            f"due       {pulse['due']:>8,}  {sparkline(self._due)}",
            f"running   {pulse['running']:>8,}  {sparkline(self._running)}",
            f"workers   {pulse['workers']:>8,}  open breakers {pulse['open_breakers']:,}",
        ]

    def _health(self) -> list[str]:
        counts = self._overview["counts"]["health"]
        shown = [colour(f"{name} {count:,}", name, sys.stdout) for name, count in counts.items() if count]
        return ["schedules " + ("   ".join(shown) or "none")]

    def _attention(self) -> list[str]:
        rows = self._overview["attention"][:MOST_ROWS]
        if not rows:
            return ["nothing needs attention"]
        width = max(cell_width(printable(row["name"])) for row in rows)
        return [f"{printable(row['name']):<{width}}  {printable(row['sentence'])}" for row in rows]


def sparkline(values: Any) -> str:
    """Return a curve of one line."""
    values = list(values)
    highest = max(values, default=0) or 1
    return "".join(BLOCKS[round(value / highest * (len(BLOCKS) - 1))] for value in values)
