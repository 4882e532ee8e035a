"""``python -m tests.attack.run [NAME ...]``: attacks a deployment and prints a table; exit 1 on a broken bound."""

import asyncio
import sys

from rich.console import Console
from rich.table import Table

from tests.attack.measuring import P99_MS, Row, measured
from tests.attack.members import ALONE, SCENARIOS
from tests.attack.scenarios import FULL
from tests.attack.target import SPARE_MEGABYTES, Target


def table(rows: list[Row]) -> Table:
    """All rows, for people."""
    title = (
        f"Good clients' p99 must stay below {P99_MS:.0f} ms; processes may take {SPARE_MEGABYTES} MB more than at start"
    )
    made = Table(
        "attack", "sent", "good: requests, errors", "p50 ms", "p99 ms", "API MB", "worker MB", "verdict", title=title
    )
    for row in rows:
        good = row.good
        figures = (
            f"{good.p50_ms:.1f}",
            f"{good.p99_ms:.1f}",
            f"{row.api_megabytes:.0f}",
            f"{row.worker_megabytes:.0f}",
        )
        made.add_row(row.name, row.sent, f"{good.requests}, {good.errors}", *figures, row.verdict)
    return made


async def main(names: list[str]) -> int:
    """Run the scenarios of these names, or all."""
    rows, scenarios = [], SCENARIOS | ALONE
    async with Target() as target:
        for name in names or list(scenarios):
            rows.append(await measured(name, scenarios[name], target, FULL))
            Console(stderr=True).print(f"{name}: {rows[-1].verdict}", soft_wrap=True)
    Console(width=200).print(table(rows))
    return int(any(row.verdict != "ok" for row in rows))


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
