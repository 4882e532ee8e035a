"""``make bench``: Carillon and its peers in the same run, on servers of their own; a table, a file and a picture."""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec

from tests.bench import many
from tests.bench.bulk import BulkChange, measure_bulk
from tests.bench.fires import Fires, measure, saturation
from tests.bench.growth import Size, measure_size
from tests.bench.live import Live, measure_live
from tests.bench.many import Asked, measure_many
from tests.bench.peers import apscheduler, arq_chain
from tests.bench.plot import drawing
from tests.bench.report import PICTURE, Row, performance_page, picture_of
from tests.bench.side_by_side import Rates, measure_side_by_side
from tests.bench.stand import Stand
from tests.bench.target import http_fires
from tests.bench.web import Answered, requests_per_second

ROUNDS = 3
HTTP_RATES = (100, 1000, 2000)
# Fires a second: more than two cores can do.
OVERLOAD = 12_000


class Gauges(msgspec.Struct):
    """All that was measured."""

    peers: dict[str, Any] = {}
    fires: list[Fires] = []
    saturation: list[Fires] = []
    two_workers: Fires | None = None
    http: list[Fires] = []
    overload: Fires | None = None
    side_by_side: list[Rates] = []
    api: dict[str, Answered] = {}
    sizes: list[Size] = []
    many: list[Asked] = []
    bulk: BulkChange | None = None
    live: Live | None = None

    @property
    def kept_up_with(self) -> float:
        """The most of which nothing was passed over."""
        return max((one.per_second for one in self.saturation if one.keeps_up), default=0.0)

    @property
    def best(self) -> float:
        """The most that fired in a second, wanted or more than could be done: what is measured of the peers."""
        return max((one.per_second for one in self.saturation), default=0.0)

    def lines(self) -> list[str]:
        """For people."""
        wide = "{:>28} {:>9} {:>8} {:>8} {:>8} {:>10} {:>11} {:>8}"
        head = wide.format("fires", "per s", "p50 ms", "p99 ms", "max ms", "cpu s/1000", "WAL kB/1000", "skipped")
        rows = [*self.fires, *self.saturation, *self.http, *filter(None, [self.two_workers, self.overload])]
        table = [
            wide.format(
                f"{one.wanted_per_second} wanted, {one.workers} worker{'s' * (one.workers > 1)}"
                + (" (HTTP)" if one in self.http else ""),
                f"{one.per_second:.0f}",
                f"{one.p50_ms:.1f}",
                f"{one.p99_ms:.1f}",
                f"{one.max_ms:.0f}",
                f"{one.cpu_seconds_per_1000:.3f}",
                f"{one.wal_bytes_per_1000 / 1000:.0f}",
                one.skipped,
            )
            for one in rows
        ]
        calls = [
            f"{name:>28} {one.per_second:>9.0f} requests/s, p50 {one.p50_ms:.1f} ms, p99 {one.p99_ms:.1f} ms"
            for name, one in self.api.items()
        ]
        sizes = [
            f"{one.schedules:>28,} schedules: get p99 {one.get_p99_ms:.1f} ms, list p99 {one.list_p99_ms:.1f} ms, "
            f"re-plan {one.replan_seconds:.1f} s, idle {one.idle_cpu_percent:.1f} % of a core, "
            f"{one.idle_megabytes:.0f} MB"
            for one in self.sizes
        ]
        peers = [f"{name:>28} {figures}" for name, figures in self.peers.items()]
        most = f"{'kept up with':>28} {self.kept_up_with:>9.0f} fires/s, at saturation {self.best:.0f}"
        fires = [head, *table, most] if rows else []
        beside = [f"{'side by side':>28} {rates.line()}" for rates in self.side_by_side]
        return [*peers, *beside, *fires, *calls, *sizes, *self._lines_of_many()]

    def rows(self) -> list[Row]:
        """For the page: the fires that were measured, with the kind of work."""
        plain = [*self.fires, *filter(None, [self.two_workers])]
        overload = [Row(self.overload, "no-op, overload")] if self.overload else []
        return [*(Row(one, "no-op") for one in plain), *(Row(one, "HTTP calls") for one in self.http), *overload]

    def _lines_of_many(self) -> list[str]:
        """Return the figures of very many schedules, operations and streams."""
        found = many.lines(self.many)
        if self.bulk is not None:
            found.append(
                f"{self.bulk.schedules:>28,} schedules paused in {self.bulk.pause_seconds:.1f} s, undone in "
                f"{self.bulk.undo_seconds:.1f} s, beside {self.bulk.fires_per_second:.0f} fires/s of "
                f"{self.bulk.wanted_per_second} (p99 {self.bulk.late_p99_ms:.0f} ms late)"
            )
        if self.live is not None:
            found.append(
                f"{self.live.subscribers:>28,} streams: {self.live.cpu_percent:.1f} % of a core, "
                f"{self.live.idle_cpu_percent:.1f} % without them; {self.live.pulses_per_second:.2f} pulses/s to each; "
                f"{self.live.fires_with.per_second:.0f} fires/s beside them, {self.live.fires_without.per_second:.0f} "
                "without them"
            )
        return found

    def charts(self) -> list[tuple[str, list[tuple[str, float]], str]]:
        """For the picture."""
        rates = [(name, one["rate"]) for name, one in self.peers.items() if isinstance(one, dict)]
        late = [(f"{one.wanted_per_second}/s", one.p99_ms) for one in self.fires]
        return [
            ("Fires a second, one process", [("Carillon, in Postgres", self.best), *rates], "/s"),
            ("Lateness at p99", late, "ms"),
            ("Requests a second, one API process", [(name, one.per_second) for name, one in self.api.items()], "/s"),
            ("Re-plan after a flush", [(f"{one.schedules:,}", one.replan_seconds) for one in self.sizes], "s"),
        ]


async def bench_many(stand: Stand, figures: Gauges, schedules: int, say: Any) -> None:
    """Lists and searches of very many schedules, an operation on a tenth of them, and streams."""
    say(f"lists of {schedules:,} schedules")
    figures.many = await measure_many(stand, schedules, 1.0)
    say("streams")
    figures.live = await measure_live(stand, 1000, 10)
    say("an operation on many")
    figures.bulk = await measure_bulk(stand, max(1, schedules // 10), 1000)


async def bench(seconds: float, rates: list[int], sizes: list[int], schedules: int, say: Any) -> Gauges:
    """One after another, so that nothing disturbs the others."""
    figures = Gauges()
    async with Stand() as stand:
        if not rates:
            await bench_many(stand, figures, schedules, say)
            return figures
        say("peers")
        figures.peers["arq chain, tuned"] = await arq_chain(stand, 3000, seconds)
        figures.peers["APScheduler on Postgres"] = await apscheduler(stand, 2000, seconds)
        figures.side_by_side = await measure_side_by_side(stand, seconds, ROUNDS, say)
        figures.peers |= {
            f"BullMQ, {one.work}": {"rate": max(one.bullmq)} for one in figures.side_by_side if one.bullmq
        }
        for rate in rates:
            say(f"{rate} fires/s")
            figures.fires.append(await measure(stand, rate, seconds))
        say("saturation")
        figures.saturation = await saturation(stand, seconds)
        say("two workers")
        figures.two_workers = await measure(stand, int(figures.kept_up_with), seconds, workers=2)
        say("HTTP")
        figures.http = [await http_fires(stand, rate, seconds) for rate in HTTP_RATES]
        say("overload")
        figures.overload = await measure(stand, OVERLOAD, seconds)
        say("API")
        figures.api = await requests_per_second(stand, seconds)
        for size in sizes:
            say(f"{size:,} schedules")
            figures.sizes.append(await measure_size(stand, size, seconds / 2))
        await bench_many(stand, figures, schedules, say)
    return figures


def main() -> None:
    """Measure, print, and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rates", type=int, nargs="*", default=[100, 500, 1000, 3000])
    parser.add_argument("--sizes", type=int, nargs="*", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--many", type=int, default=1_000_000, help="alone, if --rates has no values")
    parser.add_argument("--to", type=Path, default=Path("bench.json"))
    parser.add_argument("--page", type=Path, help="write the figures to this page, docs/performance.md for example")
    wanted = parser.parse_args()

    def say(what: str) -> None:
        sys.stderr.write(f"measuring: {what}\n")

    figures = asyncio.run(bench(wanted.seconds, wanted.rates, wanted.sizes, wanted.many, say))
    wanted.to.write_bytes(msgspec.json.format(msgspec.json.encode(figures)))
    wanted.to.with_suffix(".svg").write_text(drawing(figures.charts()))
    sys.stdout.write("\n".join(figures.lines()) + "\n")
    if wanted.page:
        wanted.page.write_text(performance_page(figures.rows(), figures.side_by_side, figures.api))
        (wanted.page.parent / PICTURE).write_text(picture_of(figures.side_by_side, figures.rows()))


if __name__ == "__main__":
    main()
