"""``carillon up`` as a newcomer meets it, and what it survives.

Covers app.wiring.
"""

import asyncio
import os
import signal
import subprocess
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import httpx

from tests.support.carillon import Json, first_slot, http_node, last_slot, until
from tests.support.http_sink import Sink
from tests.system.running import PROGRAM, STOP_SECONDS, RunningCarillon, alive

FIFTY, SECONDS = 50, 20


async def test_it_starts_fires_survives_a_killed_worker_and_stops(tmp_path: Path, sink: Sink) -> None:
    """The tour of the README, with a kill -9 in the middle; nothing is left running."""
    async with RunningCarillon(tmp_path / "data with spaces") as up, Sink() as silent:
        silent.hold_until(asyncio.Event())
        carillon = up.carillon
        workflow = await carillon.workflow(http_node(sink.url))
        schedule = await carillon.schedule(workflow, interval_seconds=1)
        await sink.wait_for_calls(2)

        slow = await carillon.workflow(http_node(silent.url))
        long_run = await carillon.schedule(slow, interval_seconds=1, backoff_base_seconds=1, total_repeats=1)

        async def running() -> bool:
            return any(run["status"] == "running" for run in await carillon.runs(long_run))

        await until(running)
        killed = up.kill("worker")

        async def lost_and_retried() -> list[Json] | None:
            runs = await carillon.runs(long_run)
            return runs if len(runs) >= 2 and runs[1]["status"] == "running" else None

        lost, retry = (await until(lost_and_retried))[:2]
        assert ("lost", 0, 1) == (lost["status"], lost["retry_attempt"], retry["retry_attempt"])
        assert lost["scheduled_for"] == retry["scheduled_for"]
        assert killed != up.child("worker")
        assert any("worker exited with signal 9" in line for line in up.lines), up.lines
        await sink.wait_for_calls(len(sink.calls) + 2)
        slots = [call.headers["x-carillon-slot"] for call in sink.calls]
        assert len(slots) - len(set(slots)) <= 1, "a slot may arrive once per attempt"
        assert schedule["id"] == sink.calls[-1].headers["x-carillon-schedule"]
        children = up.descendants()
        up.process.send_signal(signal.SIGINT)
        await asyncio.wait_for(up.process.wait(), STOP_SECONDS)
        assert 0 == up.process.returncode
        assert [] == [pid for pid in children if alive(pid)]


async def test_data_survives_a_kill_of_everything(tmp_path: Path, sink: Sink) -> None:
    """Kill -9 of the parent takes the children along; the next start goes on firing and accounts for the gap."""
    async with RunningCarillon(tmp_path) as up:
        schedule = await up.carillon.schedule(await up.carillon.workflow(http_node(sink.url)), interval_seconds=1)
        await sink.wait_for_calls(1)
        children = up.descendants()
        up.process.kill()

        async def all_dead() -> bool:
            return not any(alive(pid) for pid in children)

        await until(all_dead)
    arrived = len(sink.calls)
    async with RunningCarillon(tmp_path) as up:
        await sink.wait_for_calls(arrived + 2)
        ledger = await up.carillon.ledger(schedule)
        counted = sum(item.get("count", 1) for item in ledger)
        first = first_slot(ledger[0])
        last = datetime.fromisoformat(ledger[-1]["slot"])
        assert (last - first) / timedelta(seconds=1) + 1 == counted


async def test_the_api_and_the_servers_are_started_again_too(tmp_path: Path) -> None:
    """Each can be killed alone; what was acknowledged is there, and firing goes on."""
    async with RunningCarillon(tmp_path) as up:
        schedule = await up.carillon.schedule(interval_seconds=1)
        for name in ("api", "valkey-server", "postgres"):
            up.kill(name)

            before = await until(partial(_runs, up, schedule))
            await until(partial(_runs, up, schedule, before))


async def _runs(up: RunningCarillon, schedule: Json, before: int = 0) -> int | None:
    """How many runs there were, if more than before; None also while the API or the database is away."""
    with suppress(httpx.TransportError):
        answer = await up.carillon.request("GET", f"/schedules/{schedule['id']}/")
        if answer.status_code == 200 and answer.json()["run_count"] > before:
            return int(answer.json()["run_count"])
    return None


async def test_fifty_schedules_at_once(tmp_path: Path) -> None:
    """Each slot is accounted for once and the cadence does not drift: the 20th slot is exactly 20 seconds on."""
    async with RunningCarillon(tmp_path) as up:
        carillon = up.carillon
        workflow = await carillon.workflow()
        draft = {"name": "s", "workflow_id": workflow["id"], "interval_seconds": 1}
        made = (await carillon.call("POST", "/schedules/batch/", 201, json={"schedules": [draft] * FIFTY}))["items"]

        async def later() -> bool:
            listed = (await carillon.call("GET", "/schedules/", params={"limit": FIFTY}))["items"]
            moment = datetime.fromisoformat(made[0]["created_at"]) + timedelta(seconds=SECONDS)
            return all(datetime.fromisoformat(schedule["next_slot"]) > moment for schedule in listed)

        await until(later, seconds=SECONDS * 12)
        for schedule in made:
            await carillon.call("POST", f"/schedules/{schedule['id']}/pause/")
        for schedule in made:
            _accounted_for(schedule, await carillon.ledger(schedule))


def _accounted_for(schedule: Json, ledger: list[Json]) -> None:
    """Slots at creation + k seconds for k = 1 to 20 and beyond, each with one outcome."""
    created = datetime.fromisoformat(schedule["created_at"])
    slots: list[timedelta] = []
    for item in ledger:
        last = last_slot(item) - created
        slots += [last - timedelta(seconds=k) for k in range(item.get("count", 1))]
    assert [timedelta(seconds=k + 1) for k in range(len(slots))] == sorted(slots)
    assert len(slots) >= SECONDS
    fired = [item["slot"] for item in ledger if item["outcome"] == "fired"]
    assert len(fired) == len(set(fired))
    # A machine that stalls for more than a second misses slots, and says so.
    assert {item["outcome"] for item in ledger} <= {"fired", "missed", "skipped_overlap"}


async def test_a_taken_port_and_a_folder_in_use_are_said_clearly(tmp_path: Path) -> None:
    """One line each, exit 1."""
    async with RunningCarillon(tmp_path) as up:
        env = {**up._env, "CARILLON_DATA_DIR": str(tmp_path / "other"), "CARILLON_PORT": up.url.rsplit(":", 1)[1]}
        taken = await asyncio.to_thread(_up, env)
        assert 1 == taken.returncode
        assert "CARILLON_PORT" in taken.stderr
        in_use = await asyncio.to_thread(_up, up._env)
        assert 1 == in_use.returncode
        assert str(tmp_path) in in_use.stderr
        assert 1 == len(in_use.stderr.strip().splitlines())


def _up(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, "up"], env=env, capture_output=True, text=True, timeout=60, check=False)


async def test_it_prints_a_link_that_logs_in_to_the_console_once(tmp_path: Path) -> None:
    """Also to a pipe: the code is worth nothing after its first use, or after ten minutes."""
    async with RunningCarillon(tmp_path / "data") as up:

        async def console_code() -> str | None:
            begin = f"Console: {up.url}/console/#code="
            return next((line.removeprefix(begin) for line in up.lines if line.startswith(begin)), None)

        body = {"code": await until(console_code)}
        answers = [await up.carillon.raw("POST", "/api/v1/session/", json=body) for _ in range(2)]
        assert [204, 401] == [answer.status_code for answer in answers]


async def test_operators_commands_find_the_running_database(tmp_path: Path) -> None:
    """`carillon user create` and `carillon token create`; the token works, and is alone on stdout."""
    async with RunningCarillon(tmp_path) as up:
        env = {name: value for name, value in up._env.items() if not name.startswith("CARILLON_")}
        env |= {"CARILLON_DATA_DIR": str(tmp_path)}

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [PROGRAM, *arguments], env=env, capture_output=True, text=True, timeout=60, check=False
            )

        user = await asyncio.to_thread(run, "user", "create", "zoe", "--admin")
        assert "Created user zoe" in user.stdout
        token = await asyncio.to_thread(run, "token", "create", "zoe", "--name", "laptop")
        me = await up.carillon.with_token(token.stdout.strip()).call("GET", "/me/")
        assert ("zoe", "admin") == (me["username"], me["role"])
        again = await asyncio.to_thread(run, "user", "create", "zoe")
        assert (1, "carillon: There is a user 'zoe' already.") == (again.returncode, again.stderr.strip())


async def test_the_stock_arq_worker_works_on_the_same_queue(tmp_path: Path, sink: Sink) -> None:
    """Alone, once our own worker is stopped for good; slower, and every slot accounted for."""
    async with RunningCarillon(tmp_path) as up:
        env = up.environment_of("api")
        schedule = await up.carillon.schedule(await up.carillon.workflow(http_node(sink.url)), interval_seconds=1)
        # Stopped, not ended, so that it is not started again.
        os.kill(up.child("worker"), signal.SIGSTOP)
        stock = await asyncio.create_subprocess_exec(
            PROGRAM.with_name("arq"), "app.worker.WorkerSettings", env=env, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            await sink.wait_for_calls(3, seconds=60)
            assert stock.returncode is None
        finally:
            stock.terminate()
            await stock.wait()
            os.kill(up.child("worker"), signal.SIGCONT)
        ledger = await up.carillon.ledger(schedule)
        assert {"fired"} <= {item["outcome"] for item in ledger}
