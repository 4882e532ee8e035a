"""Connections by URLs in the format of libpq: TLS, several hosts, and parameters of the session.

Covers app.persistence.engines.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import asyncpg
import pytest
from litestar.testing import AsyncTestClient
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from app.config import load_settings
from app.domain.errors import UnavailableError
from app.persistence.database import Database, unreachable_reason
from app.persistence.engines import connector, create_engine
from app.wiring import wire_api
from tests.support.tls_front import Authority, tls_front


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A certificate authority."""
    return Authority(tmp_path)


async def shown(url: str, setting: str) -> str:
    """What the server says of a setting on a connection by this URL."""
    engine = create_engine(url)
    try:
        async with engine.connect() as connection:
            return str((await connection.execute(text(f"SHOW {setting}"))).scalar_one())
    finally:
        await engine.dispose()


async def test_parameters_reach_the_session(database_url: str) -> None:
    """Name of the application and options, as libpq sends them; Carillon's own name is the default."""
    assert "carillon" == await shown(database_url, "application_name")
    assert "bells" == await shown(f"{database_url}&application_name=bells", "application_name")
    options = quote("-c search_path=scheduler -c work_mem=7MB")
    assert "scheduler" == await shown(f"{database_url}&options={options}", "search_path")
    assert "7MB" == await shown(f"{database_url}&options={options}", "work_mem")


async def test_a_server_is_verified_by_its_authority(database_url: str, authority: Authority, tmp_path: Path) -> None:
    """With verify-full the certificate must be for the host and of the authority that the URL names."""
    database_name = urlsplit(database_url).path
    other = Authority(tmp_path, "other")
    async with tls_front(database_url, authority.issue("localhost")) as port:

        def url(host: str, certificate: Path) -> str:
            query = f"sslmode=verify-full&sslrootcert={certificate}"
            return f"postgresql://carillon@{host}:{port}{database_name}?{query}"

        assert "carillon" == await shown(url("localhost", authority.certificate), "application_name")
        for wrong in (url("127.0.0.1", authority.certificate), url("localhost", other.certificate)):
            with pytest.raises(ssl.SSLCertVerificationError):
                await shown(wrong, "application_name")


async def test_libpq_variables_give_what_the_url_leaves_out(
    database_url: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A URL that an operator of databases writes need not be changed to verify the server."""
    async with tls_front(database_url, authority.issue("localhost")) as port:
        url = f"postgresql://carillon@localhost:{port}{urlsplit(database_url).path}"
        monkeypatch.setenv("PGSSLMODE", "verify-full")
        monkeypatch.setenv("PGSSLROOTCERT", str(authority.certificate))
        assert "carillon" == await shown(url, "application_name")


async def test_a_certificate_of_the_client_is_sent(database_url: str, authority: Authority) -> None:
    """A server that asks for one gets the one of the URL, and refuses without."""
    certificate, key = authority.issue("client")
    async with tls_front(database_url, authority.issue("localhost"), authority.certificate) as port:
        url = f"postgresql://carillon@localhost:{port}{urlsplit(database_url).path}?sslmode=require"
        with pytest.raises((OSError, DBAPIError)):
            await shown(url, "application_name")
        assert "carillon" == await shown(f"{url}&sslcert={certificate}&sslkey={key}", "application_name")


async def test_an_unverified_server_is_unavailable_and_no_defect(
    database_url: str, redis_url: str, authority: Authority, tmp_path: Path
) -> None:
    """Readiness is 503 and says why; it is never a 500."""
    other = Authority(tmp_path, "other")
    async with tls_front(database_url, authority.issue("localhost")) as port:
        url = f"postgresql://carillon@localhost:{port}/x?sslmode=verify-full&sslrootcert={other.certificate}"
        database = Database(load_settings({"CARILLON_DATABASE_URL": url}).database_url)
        with pytest.raises(UnavailableError) as unavailable:
            await database.ping()
        await database.close()
        assert "CERTIFICATE_VERIFY_FAILED" in unreachable_reason(unavailable.value)
        settings = load_settings({"CARILLON_DATABASE_URL": url, "CARILLON_REDIS_URL": redis_url})
        async with AsyncTestClient(wire_api(settings)) as client:
            assert 503 == (await client.get("/health/ready")).status_code


@pytest.mark.parametrize("options", ["-c no_such_setting=1", "-c work_mem=much", "-z"])
async def test_a_session_that_the_server_refuses_is_an_outage(database_url: str, redis_url: str, options: str) -> None:
    """A wrong `options` is only known to the server: every answer is 503, names the parameter, and is never a 500."""
    environ = {"CARILLON_DATABASE_URL": f"{database_url}&options={quote(options)}", "CARILLON_REDIS_URL": redis_url}
    settings = load_settings({**environ, "CARILLON_ADMIN_TOKEN": "an-admin-token-for-this-test"})
    headers = {"Authorization": f"Bearer {settings.admin_token}"}
    async with AsyncTestClient(wire_api(settings)) as client:
        answers = [await client.get("/health/ready"), await client.get("/api/v1/me/", headers=headers)]
    assert [(503, True)] * 2 == [(answer.status_code, "`options`" in answer.json()["detail"]) for answer in answers]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(8)
        yield listening.getsockname()[1]


async def test_the_next_host_is_tried(database_url: str, silent_port: int) -> None:
    """A host that is closed and one that keeps silent are passed over, each after a timeout of its own."""
    folder = parse_qs(urlsplit(database_url).query)["host"][0]
    hosts = f"host=127.0.0.1,127.0.0.1,{quote(folder)}&port=1,{silent_port},5432"
    connect = connector(f"postgresql://carillon@{urlsplit(database_url).path}?{hosts}&connect_timeout=1")
    loop = asyncio.get_running_loop()
    connection = await connect()
    assert 1 == await connection.fetchval("SELECT 1")
    await connection.close()
    begun = loop.time()
    connection = await connect()
    # The host that answered is the first one now: nothing waits for the silent one.
    assert loop.time() - begun < 1
    await connection.close()


async def test_a_standby_is_passed_over(database_url: str) -> None:
    """Of several hosts one that accepts writes is used."""
    folder = quote(parse_qs(urlsplit(database_url).query)["host"][0])
    path = urlsplit(database_url).path
    read_only = quote("-c default_transaction_read_only=on")
    url = f"postgresql://carillon@{path}?host={folder},{folder}&options={read_only}"
    with pytest.raises(asyncpg.TargetServerAttributeNotMatched):
        await connector(url)()
    connection = await connector(f"{url}&target_session_attrs=any")()
    await connection.close()


async def test_a_refused_login_ends_the_search(database_url: str) -> None:
    """Other hosts of one cluster would refuse it too, and the message must name the cause."""
    folder = quote(parse_qs(urlsplit(database_url).query)["host"][0])
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await connector(f"postgresql://carillon@/nowhere?host={folder},127.0.0.1&port=5432,1")()
