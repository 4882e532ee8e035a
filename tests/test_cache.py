"""Caches are bounded in bytes, not only in number."""

from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.actions import catalog
from app.actions.plugins import load_actions
from app.cache import BoundedCache, ExpiringCache, RowCache
from app.domain.workflows import Node
from app.persistence import row_cache
from app.persistence.database import Database
from app.persistence.row_cache import ScheduleCache, SubjectCache
from app.services import schedule_views
from app.services.schedule_views import ViewCache
from tests.support.carillon import Carillon
from tests.support.domain_builders import schedule


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12))))
def test_it_is_never_heavier_or_longer_than_it_may_be(steps: list[tuple[int, int]]) -> None:
    """Whatever is kept, in whatever order; and what was kept last is there, if it fits at all."""
    cache: BoundedCache[int, int] = BoundedCache(3, 10)
    for key, weight in steps:
        cache.keep(key, weight, weight)
        assert (weight if weight <= 10 else None) == cache.get(key)
        kept = [one for one in (cache.get(number) for number in range(6)) if one is not None]
        assert sum(kept) == cache.weight <= 10
        assert len(kept) == len(cache) <= 3


def test_a_row_is_found_in_its_version_only() -> None:
    """A value of an older version is not returned, and a newer one takes its place."""
    cache: RowCache[str, str] = RowCache(2)
    cache.keep("a", 1, "old", 10)
    cache.keep("a", 2, "new", 20)
    assert (None, "new") == (cache.at_version("a", 1), cache.at_version("a", 2))
    assert (20, 20) == (cache.weight, cache.weight_of("a"))
    cache.clear()
    assert (None, 0) == (cache.at_version("a", 2), cache.weight)


def test_a_value_expires_and_can_still_be_asked_for() -> None:
    """At the moment itself it has expired; only the caller who can do with an old value gets it."""
    cache: ExpiringCache[str, str] = ExpiringCache(1)
    cache.keep("a", "value", 10.0)
    assert ("value", None) == (cache.fresh("a", 9.9), cache.fresh("a", 10.0))
    assert ("value", None) == (cache.stale("a"), cache.stale("b"))
    cache.keep("b", "other", 10.0)
    assert cache.stale("a") is None


def test_a_worker_remembers_payloads_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A payload is measured once, however often its schedule ticks."""
    monkeypatch.setattr(row_cache, "MOST_BYTES", 1000)
    kept = ScheduleCache()
    payload = {"x": "y" * 300}
    jobs = [msgspec.structs.replace(schedule(), id=UUID(int=number), trigger_payload=payload) for number in range(5)]
    for version, job in enumerate(jobs):
        kept.keep(job, version)
    assert [False, False, True, True, True] == [kept.recall(job.id) is not None for job in jobs]
    kept.keep(msgspec.structs.replace(jobs[4], run_count=1), 9)
    found = kept.recall(jobs[4].id)
    assert found is not None
    assert (9, 1) == (found[0], found[1].run_count)


async def test_workflows_are_remembered_up_to_a_bound(
    carillon: Carillon, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those that do not fit are read again, and are the same."""
    monkeypatch.setattr(row_cache, "MOST_GRAPH_BYTES", 1500)
    node = {"id": "work", "type": "core.http_request", "config": {"url": "http://x.test/", "body": "x" * 1000}}
    made = [(await carillon.workflow(node, name=f"w{number}"))["id"] for number in range(3)]
    known = SubjectCache()
    for _ in range(2):
        async with database.reading() as connection:
            found = await known.read(connection, [(1, flow_id) for flow_id in made])
        assert ["w0", "w1", "w2"] == [flow.name for _, flow in found if flow is not None]
        assert 1 == len(known._flows)


async def test_views_are_kept_up_to_a_bound(
    carillon: Carillon, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With and without their payloads."""
    monkeypatch.setattr(schedule_views, "MOST_VIEW_BYTES", 8000)
    made = [UUID((await carillon.schedule(trigger_payload={"x": "y" * 2000}))["id"]) for _ in range(5)]
    for whole, cache in ((True, ViewCache(whole=True)), (False, ViewCache(whole=False))):
        async with database.reading() as connection:
            views = await cache.read(connection, [(schedule_id, 0) for schedule_id in made])
        assert 5 == len(views)
        assert {whole} == {b"yyyy" in view.text for view in views.values()}
        assert 0 < cache._views.weight <= 8000


def test_fixed_configurations_are_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are kept along with their nodes."""
    monkeypatch.setattr(catalog, "MOST_FIXED_BYTES", 1000)
    made = catalog.Catalog(load_actions().actions)
    config: dict[str, Any] = {"url": "http://x.test/", "body": "x" * 400}
    for _ in range(5):
        assert made._fixed_config(Node(str(uuid4()), "core.http_request", config)) is not None
    assert 2 == len(made._fixed)
