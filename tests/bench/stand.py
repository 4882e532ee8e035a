"""A stand to measure on: servers of its own, processes of Carillon, and figures read from the operating system."""

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

import asyncpg
from redis.asyncio import Redis

from app.embedded import EmbeddedPostgres, EmbeddedValkey
from app.persistence.migrations import migrate_now
from tests.support.carillon import ADMIN_TOKEN, until

PROGRAM = Path(sys.executable).with_name("carillon")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Stand:
    """Postgres and Valkey with nothing left out of what makes them durable, in a folder that is gone afterwards."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self.folder = Path(tempfile.mkdtemp(prefix="cb-"))
        self.postgres = EmbeddedPostgres(self.folder / "pg")
        self.valkey = EmbeddedValkey(self.folder / "vk")

    async def __aenter__(self) -> Self:
        self.postgres.start()
        self.valkey.start()
        await asyncio.to_thread(migrate_now, self.postgres.url)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.valkey.stop()
        self.postgres.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def environment(self) -> dict[str, str]:
        """What a process of Carillon is told."""
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("CARILLON_")},
            "CARILLON_DATABASE_URL": self.postgres.url,
            "CARILLON_REDIS_URL": self.valkey.url,
            "CARILLON_ADMIN_TOKEN": ADMIN_TOKEN,
            "CARILLON_HTTP_ALLOW": "127.0.0.0/8",
            "CARILLON_RATE_LIMIT_PER_MINUTE": "0",
            "CARILLON_LOG_LEVEL": "warning",
            "CARILLON_LOG_FORMAT": "json",
        }

    @asynccontextmanager
    async def running(self, command: str, log: Path | None = None, **settings: str) -> AsyncIterator["Running"]:
        """A process of Carillon, for the length of the block; what it says goes to a file if one is named."""
        with ExitStack() as stack:
            said = None if log is None else stack.enter_context(log.open("ab"))
            process = await asyncio.create_subprocess_exec(
                PROGRAM, command, env=self.environment | settings, stdout=said, stderr=said
            )
        try:
            yield Running(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            await process.wait()

    def postgres_cpu_seconds(self) -> float:
        """What all processes of Postgres have used so far, those that have ended included."""
        server = (self.folder / "pg" / "postmaster.pid").read_text().split()[0]
        fields = [_stat(path) for path in Path("/proc").glob("[0-9]*/stat")]
        own = [sum(map(int, one[11:15])) for pid, one in fields if pid == server]
        children = [sum(map(int, one[11:13])) for _, one in fields if one[1:2] == [server]]
        return sum([*own, *children]) / TICKS_PER_SECOND

    async def sql(self, statement: str, *values: Any) -> list[Any]:
        """Ask Postgres."""
        connection = await asyncpg.connect(
            host=str(self.postgres.socket_folder), user="carillon", database="carillon", command_timeout=600
        )
        try:
            found: list[Any] = await connection.fetch(statement, *values)
            return found
        finally:
            await connection.close()

    async def value(self, statement: str, *values: Any) -> Any:
        """The one value that is asked for."""
        return (await self.sql(statement, *values))[0][0]

    async def wal_bytes(self) -> int:
        """How much has been written ahead so far."""
        return int(await self.value("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))

    async def forget(self) -> None:
        """An empty Carillon."""
        await self.sql(
            "TRUNCATE scheduled_jobs, workflows, workflow_executions, ledger_entries, active_executions, due_ticks, "
            "schedule_marks, schedule_texts CASCADE"
        )
        await self.put_in_order()
        async with Redis.from_url(self.valkey.url) as redis:
            await redis.flushall()

    async def put_in_order(self) -> None:
        """What Postgres would do by and by after much was written: it shall not do it while something is measured."""
        for statement in ("VACUUM ANALYZE", "CHECKPOINT"):
            await self.sql(statement)

    async def workflow(self, node: dict[str, Any]) -> int:
        """A workflow of one node."""
        nodes = [{"id": "start", "type": "trigger_schedule", "config": {}}, {"config": {}, **node}]
        edges = [{"from": "start", "to": node["id"]}]
        statement = (
            "INSERT INTO workflows (user_profile_id, owner_id, name, nodes, edges) "
            "VALUES (1, '1', 'bench', $1, $2) RETURNING id"
        )
        return int(await self.value(statement, json.dumps(nodes), json.dumps(edges)))

    async def schedules(self, workflow_id: int, count: int, *, interval_seconds: float, begin: float) -> None:
        """So many schedules, their first slots spread evenly over one interval that begins in ``begin`` seconds."""
        await self.sql(
            "INSERT INTO scheduled_jobs (id, user_profile_id, owner_id, workflow_id, name, description, "
            "trigger_payload, interval_seconds, total_repeats, max_retries, timeout_seconds, catch_up, "
            "misfire_grace_seconds, if_running, "
            "status, status_reason, generation, anchor_at, cadence_slot, next_slot, next_run_at, next_attempt, "
            "current_repeat, current_retry, run_count, error_count, last_error, created_at, updated_at) "
            "SELECT gen_random_uuid(), 1, '1', $1, 'bench', '', '{}', $3, 0, 3, 600, 'skip', 60, 'skip', 'active', "
            "'', 0, t.first - make_interval(secs => $3), t.first, t.first, t.first, 0, 0, 0, 0, 0, '', now(), now() "
            "FROM (SELECT clock_timestamp() + make_interval(secs => $4 + $3 * n::float / $2) AS first "
            "FROM generate_series(0, $2 - 1) AS n) AS t",
            workflow_id,
            count,
            float(interval_seconds),
            float(begin),
        )
        await self.sql("ANALYZE scheduled_jobs")

    async def until_value(self, statement: str, wanted: Any, seconds: float = 300) -> None:
        """Wait until a question is answered so."""

        async def answered() -> bool:
            return bool(await self.value(statement) == wanted)

        await until(answered, seconds)


def _stat(path: Path) -> tuple[str, list[str]]:
    """Return the number of a process and the fields of its state; none if it has just ended."""
    try:
        return path.parent.name, path.read_text().rsplit(")", 1)[1].split()
    except OSError:
        return path.parent.name, []


class Running:
    """A process that runs, and what it costs."""

    def __init__(self, pid: int) -> None:
        """By its number."""
        self.pid = pid

    def cpu_seconds(self) -> float:
        """What it has used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

    def megabytes(self) -> float:
        """What it holds."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
