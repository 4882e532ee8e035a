"""The restore drill: dump, go on, restore, and account for every slot, as docs/operating.md says."""

import subprocess
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from app.embedded import EmbeddedPostgres
from app.embedded.accounts import postgres_install
from app.persistence.database import Database
from tests.support.api_server import serving
from tests.support.carillon import (
    Carillon,
    Json,
    http_node,
    settings_on,
    until,
    working,
)
from tests.support.http_sink import Call, Sink

SECOND = timedelta(seconds=1)


def postgres_tool(server: EmbeddedPostgres, name: str, *arguments: str) -> None:
    """Run a client program of Postgres on this server."""
    login = ("--host", str(server.socket_folder), "--username", "carillon")
    subprocess.run([postgres_install().program(name), *login, *arguments], check=True, capture_output=True)


def paths(calls: Sequence[Call]) -> Counter[str]:
    """How often each path was called."""
    return Counter(call.path for call in calls)


async def called(sink: Sink, path: str, count: int) -> None:
    """Wait until a path was called so often."""

    async def enough() -> bool:
        return paths(sink.calls)[path] >= count

    await until(enough)


async def calling(carillon: Carillon, sink: Sink, name: str, **values: object) -> Json:
    """Create a schedule that calls a path of its own each second."""
    workflow = await carillon.workflow(http_node(f"{sink.url}/{name}"))
    return await carillon.schedule(workflow, name=name, interval_seconds=1, if_running="allow", **values)


async def test_every_slot_is_accounted_for_after_a_restore(
    postgres: EmbeddedPostgres, database: Database, redis_url: str, tmp_path: Path, sink: Sink
) -> None:
    """What fired after the dump fires again under the same keys, or is missed; what was made after it is gone."""
    settings = settings_on(database.url, redis_url, tmp_path)
    name, file = urlsplit(database.url).path.strip("/"), str(tmp_path / "dump")
    async with serving(settings) as carillon, working(settings):
        again = await calling(carillon, sink, "again", catch_up="run_all")
        missed = await calling(carillon, sink, "missed", misfire_grace_seconds=1)
        deleted = await calling(carillon, sink, "deleted")
        await called(sink, "/again", 2)
        postgres_tool(postgres, "pg_dump", "--format", "custom", "--file", file, name)
        before = len(sink.calls)
        made = await calling(carillon, sink, "made")
        await carillon.call("DELETE", f"/schedules/{deleted['id']}/", 204)
        manual = await carillon.call("POST", f"/schedules/{again['id']}/run/", 202)
        await called(sink, "/made", 1)
        await called(sink, "/again", paths(sink.calls[:before])["/again"] + 3)
    await database.close()
    lost = len(sink.calls)
    postgres_tool(postgres, "dropdb", "--force", name)
    postgres_tool(postgres, "createdb", name)
    postgres_tool(postgres, "pg_restore", "--dbname", name, file)

    # Redis is as it was: its messages are ahead of the rows.
    async with serving(settings) as carillon, working(settings):
        for path in ("/again", "/missed", "/deleted"):
            await called(sink, path, paths(sink.calls[:lost])[path] + 2)
        outcomes = {one["name"]: await carillon.outcomes(one, SECOND) for one in (again, missed, deleted)}
        assert {"fired"} == set(outcomes["again"].values())
        assert {"fired", "missed"} == set(outcomes["missed"].values())
        calls = Counter(
            (call.headers["x-carillon-slot"], call.headers["idempotency-key"])
            for call in sink.calls
            if call.path == "/again" and call.headers["x-carillon-execution"] != manual["id"]
        )
        assert len(calls) == len({slot for slot, _ in calls}), "a slot has two keys"
        assert sum(times > 1 for times in calls.values()) >= 2
        assert 404 == (await carillon.request("GET", f"/schedules/{made['id']}/")).status_code
        assert 404 == (await carillon.request("GET", f"/executions/{manual['id']}/")).status_code
        assert "/made" not in paths(sink.calls[lost:])
