"""Names of targets are looked up within a deadline, and nobody waits for another's lookups."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.actions import ssrf_guard
from app.actions.http_client import Answer, CallFailedError, HttpCaller, Sender
from app.actions.ssrf_guard import AddressGuard, TargetResolver
from tests.support.carillon import PATIENCE_SECONDS, until
from tests.support.hostile_dns import HostileDns, Zone, hostile_dns
from tests.support.http_sink import Sink

MIA, MAX = 1, 2
LOOPBACK = "127.0.0.0/8"


@asynccontextmanager
async def calling(zone: Zone, *allowed: str, **channel: Any) -> AsyncIterator[tuple[HttpCaller, HostileDns]]:
    """A client whose names are looked up in this zone."""
    async with hostile_dns(zone) as server:
        resolver = partial(TargetResolver, nameservers=[server.server], **channel)
        async with HttpCaller(AddressGuard(allowed), None, resolver) as caller:
            yield caller, server


async def call(caller: HttpCaller, url: str, owner: int = MIA) -> Answer:
    """One call, on a connection of its own."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await caller.call("POST", url, {"Connection": "close"}, b"{}", "id", Sender(owner))


async def failure(caller: HttpCaller, url: str) -> str:
    """Why a call failed."""
    with pytest.raises(CallFailedError) as caught:
        await call(caller, url)
    return str(caught.value)


def port(sink: Sink) -> str:
    """Where a target listens."""
    return sink.url.rsplit(":", 1)[1]


def names_in_the_hosts_file() -> set[str]:
    """The names of this machine's own file that have an IPv4 address."""
    lines = [line.partition("#")[0].split() for line in Path("/etc/hosts").read_text().splitlines()]
    return {name for address, *names in filter(None, lines) if "." in address for name in names}


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lookups that hang do so for the whole test, so that a machine that stalls does not end them."""
    for name in ("LOOKUP_SECONDS", "FIRST_TRY_SECONDS", "PLACE_SECONDS"):
        monkeypatch.setattr(ssrf_guard, name, 300.0)


@pytest.mark.usefixtures("_patient")
async def test_names_that_never_resolve_hold_up_nobody_else(sink: Sink) -> None:
    """Another owner's call ends while forty lookups of the first hang, four of them under way."""
    hanging = [f"name{number}.hang.test" for number in range(40)]
    zone: Zone = {**dict.fromkeys(hanging), "good.test": ["127.0.0.1"]}
    async with calling(zone, LOOPBACK) as (caller, server):
        pile = [asyncio.create_task(call(caller, f"http://{name}/", MIA)) for name in hanging]

        async def asked() -> bool:
            return len(server.asked) >= ssrf_guard.LOOKUPS_PER_OWNER

        await until(asked)
        answer = await call(caller, f"http://good.test:{port(sink)}/", MAX)
        assert (200, 0) == (answer.status, sum(task.done() for task in pile))
        assert ssrf_guard.LOOKUPS_PER_OWNER + 1 == len(server.asked)
        for task in pile:
            task.cancel()
        await asyncio.wait(pile)


@pytest.mark.usefixtures("_patient")
async def test_nobody_waits_for_the_same_name_behind_another_owners_lookups(sink: Sink) -> None:
    """A name that one owner has in a queue is looked up for the other at once."""
    hanging = [f"name{number}.hang.test" for number in range(ssrf_guard.LOOKUPS_PER_OWNER)]
    zone: Zone = {**dict.fromkeys(hanging), "good.test": ["127.0.0.1"]}
    url = f"http://good.test:{port(sink)}/"
    async with calling(zone, LOOPBACK) as (caller, server):
        pile = [asyncio.create_task(call(caller, f"http://{name}/", MIA)) for name in hanging]

        async def asked() -> bool:
            return len(server.asked) == len(hanging)

        await until(asked)
        queued = asyncio.create_task(call(caller, url, MIA))

        async def waits() -> bool:
            assert caller._resolver is not None
            return caller._resolver._owners[MIA].users > len(hanging)

        await until(waits)
        answer = await call(caller, url, MAX)
        assert (200, 0) == (answer.status, sum(task.done() for task in pile))
        for task in (queued, *pile):
            task.cancel()
        await asyncio.wait({queued, *pile})


async def test_a_name_that_cannot_be_resolved_is_said_plainly() -> None:
    """It never answers, or it does not exist."""
    async with calling({"never.test": None}, LOOPBACK) as (caller, _):
        assert "The name never.test could not be resolved within 3 s." == await failure(caller, "http://never.test/")
        assert (await failure(caller, "http://unknown.test/")).startswith(
            "The name unknown.test could not be resolved: "
        )


@pytest.mark.usefixtures("_patient")
async def test_a_call_that_is_dropped_gives_its_place_back() -> None:
    """Nothing is kept for owners without a lookup under way."""
    async with hostile_dns({"never.test": None}) as server:
        resolver = TargetResolver(nameservers=[server.server])
        lookups = [asyncio.create_task(resolver.resolve("never.test")) for _ in range(10)]

        async def asked() -> bool:
            return bool(server.asked)

        await until(asked)
        assert 1 == len(resolver._owners)
        for lookup in lookups:
            lookup.cancel()
        await asyncio.wait(lookups)
        assert {} == resolver._owners
        await resolver.close()


async def test_localhost_and_search_domains_are_known(sink: Sink) -> None:
    """As Kubernetes and operators rely on."""
    zone: Zone = {"target.shop.svc.cluster.local": ["127.0.0.1"]}
    search = {"domains": ["web.svc.cluster.local", "svc.cluster.local"], "ndots": 5}
    async with calling(zone, LOOPBACK, "::1", **search) as (caller, _):
        for name in ("localhost", "target.shop"):
            assert 200 == (await call(caller, f"http://{name}:{port(sink)}/")).status, name


async def test_the_hosts_file_is_read() -> None:
    """Every name that this machine has in it is found, and no name server is asked."""
    names = names_in_the_hosts_file()
    async with hostile_dns({}) as server:
        resolver = TargetResolver(nameservers=[server.server])
        for name in names:
            assert any("." in found["host"] for found in await resolver.resolve(name)), name
        await resolver.close()
        assert not server.asked


async def test_a_name_that_is_bound_anew_is_judged_anew(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """It led to an allowed address at first."""
    monkeypatch.setattr(ssrf_guard, "CACHE_SECONDS", 0.0)
    zone: Zone = {"rebind.test": ["127.0.0.1"]}
    url = f"http://rebind.test:{port(sink)}/"
    async with calling(zone, "127.0.0.1") as (caller, server):
        assert 200 == (await call(caller, url)).status
        server.zone["rebind.test"] = ["127.0.0.2"]
        assert "rebind.test leads to an address" in await failure(caller, url)
    assert 1 == len(sink.calls)


async def test_of_a_huge_answer_some_addresses_are_tried() -> None:
    """Not sixty connections for one call."""
    addresses = [f"127.0.1.{number}" for number in range(60)]
    async with hostile_dns({"huge.test": addresses}) as server:
        resolver = TargetResolver(nameservers=[server.server])
        assert ssrf_guard.ADDRESSES_PER_NAME == len(await resolver.resolve("huge.test", 80))
        await resolver.close()


@pytest.mark.parametrize(
    ("addresses", "allowed"),
    [
        (["10.1.2.3"], ()),
        (["10.1.2.3", "10.1.2.4", "fd00::7"], ()),
        (["169.254.169.254"], ("inner.test",)),
        (["64:ff9b::a9fe:a9fe"], ("inner.test",)),
        (["127.0.0.1"], ("inner.test",)),
        (["127.0.0.1", "127.0.0.2"], (LOOPBACK,)),
    ],
)
async def test_errors_name_no_address_that_a_name_led_to(addresses: list[str], allowed: tuple[str, ...]) -> None:
    """Neither when it is refused nor when nobody listens there."""
    async with calling({"inner.test": addresses}, *allowed) as (caller, _):
        error = await failure(caller, "http://inner.test:1/")
    assert "inner.test" in error
    assert not [address for address in addresses if address in error]


async def test_an_allowed_name_leads_inside_and_never_to_metadata(sink: Sink) -> None:
    """Unless the address itself is allowed."""
    zone: Zone = {"inner.test": ["127.0.0.1"], "meta.test": ["169.254.169.254"]}
    async with calling(zone, "inner.test", "meta.test") as (caller, _):
        assert 200 == (await call(caller, f"http://inner.test:{port(sink)}/")).status
        assert "meta.test leads to a metadata address" in await failure(caller, "http://meta.test/")
