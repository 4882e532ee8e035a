"""The small HTTP server of a worker, asked by raw bytes and by our own client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.http1.connections import send_once
from app.http1.response import ExchangeError, Response
from app.observability import serving as module
from app.observability.serving import Health, serving
from tests.support.requests import get_request


class Told:
    """Answers as the test says."""

    alive = True
    ready_now = True

    async def live(self) -> bool:
        """As told."""
        return self.alive

    async def ready(self) -> Health:
        """As told."""
        return Health(self.ready_now, b'{"status":"told"}')

    async def metrics(self) -> bytes:
        """More than fits into one packet."""
        return b"metric 1\n" * 50_000


@asynccontextmanager
async def served(folder: Path, token: str = "") -> AsyncIterator[tuple[Told, Path]]:
    """A server on a unix socket."""
    answers, path = Told(), folder / "socket"
    async with serving(path, answers, token):
        yield answers, path


async def ask(path: Path, url: str, method: str = "GET", **headers: str) -> Response:
    """Ask the server."""
    request = get_request(f"http://worker{url}", method, headers=headers)
    return await send_once(request, [str(path)], tls=None, most_body_bytes=1_000_000, seconds=60)


async def raw(path: Path, data: bytes) -> bytes:
    """Send bytes and return all that comes back."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_answers_become_statuses(tmp_path: Path) -> None:
    """200, or 503 if the process is stuck or cannot work; 404 and 405 for anything else."""
    async with served(tmp_path) as (answers, path):
        assert [200, 200, 200] == [
            (await ask(path, url)).status for url in ("/health/live", "/health/ready", "/metrics")
        ]
        assert b"metric 1\n" * 50_000 == (await ask(path, "/metrics?x=1")).body
        answers.alive = answers.ready_now = False
        stuck, unready = await ask(path, "/health/live"), await ask(path, "/health/ready")
        assert (503, b'{"status":"stuck"}') == (stuck.status, stuck.body)
        assert (503, b'{"status":"told"}') == (unready.status, unready.body)
        assert "application/json" == unready.headers["content-type"]
        head = await ask(path, "/health/live", "HEAD")
        assert (503, b"", "18") == (head.status, head.body, head.headers["content-length"])
        assert [404, 405] == [(await ask(path, "/")).status, (await ask(path, "/metrics", "POST")).status]


async def test_a_defect_is_answered_with_500(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next request as if nothing had happened."""

    async def broken(_answers: Told) -> Health:
        raise RuntimeError("broken")

    async with served(tmp_path) as (_, path):
        monkeypatch.setattr(Told, "ready", broken)
        assert [500, 200] == [(await ask(path, url)).status for url in ("/health/ready", "/health/live")]


async def test_metrics_need_the_token_if_there_is_one(tmp_path: Path) -> None:
    """Health does not."""
    async with served(tmp_path, "sesame") as (_, path):
        for given, status in (("Bearer sesame", 200), ("bearer  sesame ", 200), ("Bearer other", 401), ("sesame", 401)):
            assert status == (await ask(path, "/metrics", Authorization=given)).status, given
        assert "Bearer" == (await ask(path, "/metrics")).headers["www-authenticate"]
        assert 200 == (await ask(path, "/health/live")).status


@pytest.mark.parametrize("data", [b"x" * 100_000, b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 10_000])
async def test_a_head_that_does_not_end_closes_the_connection(tmp_path: Path, data: bytes) -> None:
    """Nothing is buffered without bound, and the next one is served."""
    async with served(tmp_path) as (_, path):
        assert b"" == await raw(path, data)
        assert 200 == (await ask(path, "/health/live")).status


async def test_slow_and_broken_clients_hold_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that says nothing is closed after a while."""
    monkeypatch.setattr(module, "CONNECTION_SECONDS", 0.2)
    async with served(tmp_path) as (_, path):
        assert b"" == await raw(path, b"GET /hea")
        assert b"HTTP/1.1 405 " == (await raw(path, b"\x00\xff garbage\r\n\r\n"))[:13]


async def test_the_end_does_not_wait_for_clients(tmp_path: Path) -> None:
    """Connections that are open are closed."""
    async with served(tmp_path) as (_, path):
        reader, writer = await asyncio.open_unix_connection(path)
        assert 200 == (await ask(path, "/health/live")).status
    assert b"" == await reader.read()
    writer.close()
    with pytest.raises(ExchangeError):
        await ask(path, "/health/live")
