"""``make bench``: Carillon and its peers in the same run, on servers of their own; a table, and ``bench.json``."""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec

from tests.bench.fires import Fires, measure
from tests.bench.peers import arq_chain, bullmq
from tests.bench.stand import Stand
from tests.bench.target import http_fires
from tests.bench.web import requests_per_second


class Figures(msgspec.Struct):
    """All that was measured."""

    fires: list[Fires] = []
    two_workers: Fires | None = None
    http: Fires | None = None
    api: dict[str, float] = {}
    peers: dict[str, Any] = {}

    def lines(self) -> list[str]:
        """For people."""
        wide = "{:>24} {:>9} {:>8} {:>8} {:>8} {:>10} {:>12}"
        head = wide.format("fires", "per s", "p50 ms", "p99 ms", "max ms", "cpu s/1000", "wal B/1000")
        rows = [(f"{one.wanted_per_second} wanted", one) for one in self.fires]
        if self.two_workers is not None:
            rows.append((f"{self.two_workers.wanted_per_second} wanted, 2 workers", self.two_workers))
        if self.http is not None:
            rows.append((f"{self.http.wanted_per_second} wanted, HTTP", self.http))
        table = [
            wide.format(
                name,
                f"{one.per_second:.0f}",
                f"{one.p50_ms:.1f}",
                f"{one.p99_ms:.1f}",
                f"{one.max_ms:.0f}",
                f"{one.cpu_seconds_per_1000:.3f}",
                f"{one.wal_bytes_per_1000:.0f}",
            )
            for name, one in rows
        ]
        calls = [f"{name:>24} {rate:>9.0f} requests/s" for name, rate in self.api.items()]
        peers = [f"{name:>24} {figures}" for name, figures in self.peers.items()]
        return [head, *table, *calls, *peers]


async def bench(seconds: float, rates: list[int]) -> Figures:
    """One after another, so that nothing disturbs the others."""
    figures = Figures()
    async with Stand() as stand:
        figures.peers["arq chain, tuned"] = await arq_chain(stand, 3000, seconds)
        figures.peers["BullMQ"] = await bullmq(stand, 8000, seconds)
        for rate in rates:
            figures.fires.append(await measure(stand, rate, seconds))
        figures.two_workers = await measure(stand, rates[-1], seconds, workers=2)
        figures.http = await http_fires(stand, 2500, seconds)
        figures.api = await requests_per_second(stand, seconds)
    return figures


def main() -> None:
    """Measure, print, and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rates", type=int, nargs="+", default=[100, 500, 1000, 3000, 6000])
    parser.add_argument("--to", type=Path, default=Path("bench.json"))
    wanted = parser.parse_args()
    figures = asyncio.run(bench(wanted.seconds, wanted.rates))
    wanted.to.write_bytes(msgspec.json.format(msgspec.json.encode(figures)))
    sys.stdout.write("\n".join(figures.lines()) + "\n")


if __name__ == "__main__":
    main()
