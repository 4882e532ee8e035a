"""The page of figures, ``docs/performance.md``, as the bench writes it."""

import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import msgspec

from tests.bench.fires import Fires
from tests.bench.plot import drawing
from tests.bench.side_by_side import Rates
from tests.bench.web import Answered

HEAD = """# Performance

Written by the code of `make bench` ({date}; {machine}). Everything runs on this one machine: Postgres with
fsync, Valkey, the target of the calls, the workers and the bench itself. Compare figures within the page; on another
machine all of them differ. [scaling.md](scaling.md) says what follows for larger installations.

A fire is accounted for: the run is written when it begins and when it ends, a no-op once, and the next slot is
planned. "Keeps up with" is the highest rate of which nothing was passed over, with one worker process.
"""


class Row(msgspec.Struct):
    """Fires of one rate, and their kind of work."""

    fires: Fires
    work: str


# Where the page finds its picture.
PICTURE = "pictures/performance.svg"


def picture_of(rates: Sequence[Rates], rows: Sequence[Row]) -> str:
    """Return the picture of the page: both schedulers at each kind of work, and how late fires were."""
    beside = [
        (
            f"{one.work}: fires a second, one worker, median of the rounds",
            [("Carillon, each accounted for", median(one.carillon)), ("BullMQ", median(one.bullmq))],
            "/s",
        )
        for one in rates
        if one.carillon and one.bullmq
    ]
    late = [(f"{row.work}, {row.fires.wanted_per_second:,}/s", row.fires.p99_ms) for row in rows if row.fires.keeps_up]
    return drawing([*beside, ("Lateness at p99", late, "ms")])


def performance_page(rows: Sequence[Row], rates: Sequence[Rates], api: Mapping[str, Answered]) -> str:
    """Return the whole page."""
    head = HEAD.format(date=f"{datetime.now(UTC):%Y-%m-%d}", machine=machine())
    picture = f"![Fires a second beside BullMQ, and lateness]({PICTURE})"
    return "\n".join([head, picture, "", *_side_by_side(rates), "", *_fires(rows), "", *_api(api), ""])


def machine() -> str:
    """Return what the bench ran on, in a few words."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = models[0].split(":", 1)[1].strip() if models else platform.machine()
    return f"{os.cpu_count()} cores of {model}, Python {platform.python_version()}"


def _side_by_side(rates: Sequence[Rates]) -> list[str]:
    head = [
        "## Beside BullMQ",
        "",
        "In turns, in the same minutes: a worker of Carillon, and one of BullMQ with its job schedulers, which calls",
        "by undici and keeps its history in memory.",
        "",
        "| work | Carillon keeps up with, round by round | BullMQ does | ratio |",
        "|---|---|---|---|",
    ]
    return [*head, *(f"| {one.work} | {_many(one.carillon)} | {_many(one.bullmq)} | {_ratio(one)} |" for one in rates)]


def _ratio(rates: Rates) -> str:
    ratios = sorted(rates.ratios)
    return f"{ratios[0]:.2f} to {ratios[-1]:.2f}" if ratios else "not measured"


def _many(values: Sequence[float]) -> str:
    return ", ".join(f"{value:,.0f}/s" for value in values) or "not measured"


def _fires(rows: Sequence[Row]) -> list[str]:
    table = [
        "## Fires",
        "",
        "CPU and WAL are for 1,000 fires. Lateness is from the slot to the start of the run.",
        "",
        "| work | wanted | workers | fires/s | p50 ms | p99 ms | worker CPU s | Postgres CPU s | WAL kB | missed |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        one = row.fires
        cells = (
            row.work,
            f"{one.wanted_per_second:,}/s",
            one.workers,
            f"{one.per_second:,.0f}",
            f"{one.p50_ms:.1f}",
            f"{one.p99_ms:.1f}",
            f"{one.cpu_seconds_per_1000:.3f}",
            f"{one.postgres_cpu_seconds_per_1000:.3f}",
            f"{one.wal_bytes_per_1000 / 1000:,.0f}",
            f"{one.skipped:,}",
        )
        table.append(f"| {' | '.join(map(str, cells))} |")
    return table


def _api(api: Mapping[str, Answered]) -> list[str]:
    if not api:
        return []
    rows = [f"| {name} | {one.per_second:,.0f} | {one.p50_ms:.1f} | {one.p99_ms:.1f} |" for name, one in api.items()]
    return ["## Requests to one API process", "", "| call | a second | p50 ms | p99 ms |", "|---|---|---|---|", *rows]
