"""Starts both servers in the folder of the argument, writes a row and a key, prints what there is, and waits."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import asyncpg
import redis

from app.embedded import EmbeddedPostgres, EmbeddedValkey


async def _count(host: Path) -> int:
    connection = await asyncpg.connect(user="carillon", database="carillon", host=str(host))
    await connection.execute("CREATE TABLE IF NOT EXISTS visit (id serial)")
    await connection.execute("INSERT INTO visit DEFAULT VALUES")
    visits: int = await connection.fetchval("SELECT count(*) FROM visit")
    await connection.close()
    return visits


def main(folder: Path) -> None:
    """Run until SIGTERM, or until killed."""
    signal.signal(signal.SIGTERM, lambda *_: None)
    with EmbeddedPostgres(folder / "postgres") as postgres, EmbeddedValkey(folder / "valkey") as valkey:
        found = {
            "uid": os.getuid(),
            "pids": [postgres.process.pid, valkey.process.pid],
            "sockets": [str(postgres.socket_folder), str(valkey.socket_folder)],
            "visits": [asyncio.run(_count(postgres.socket_folder)), redis.Redis.from_url(valkey.url).incr("visits")],
        }
        print(json.dumps(found), flush=True)  # noqa: T201 - read by the test
        signal.pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
