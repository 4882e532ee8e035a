"""``carillon export``: what there is, in the form that ``carillon apply`` reads.

Covers app.services.declarations.exporting.
"""

from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from msgspec.structs import replace

from app.cli.operators import OPERATOR
from app.domain.declarations import differences
from app.domain.errors import CarillonError, InvalidError, NotFoundError
from app.domain.schedules import EDITABLE, Reason, Status
from app.persistence.database import Database
from app.services.declarations.exporting import ExportService, Selection, schedule_entry
from app.services.declarations.files import Source, read_file
from app.services.declarations.yaml_text import write_documents
from tests.domain.strategies import excluded_days, expressions, intervals, sparse_expressions, windows, zones
from tests.support.carillon import Carillon
from tests.support.declarations import CATALOG, NIGHTLY, Applying
from tests.support.domain_builders import schedule
from tests.support.hypothesis_examples import examples

FULL = """\
namespace: shop
workflows:
- name: report
  nodes:
  - id: start
    type: trigger_schedule
  - id: call
    type: core.http_request
    config:
      url: https://example.com/{{ slot }}
      headers:
        Authorization: Bearer {{ secret.TOKEN }}
  edges:
  - from: start
    to: call
  max_concurrent_runs: 2
schedules:
- name: month
  workflow: report
  every: monthly
  timezone: Europe/Berlin
  start_at: '2030-01-01T00:00:00Z'
  description: ä "quoted" one
  trigger_payload:
    at: '2026-01-01'
    'on': 1e3
  paused: true
- name: office hours
  workflow: report
  every: 1.5s
  only_between: 08:00-18:00
  not_on:
  - saturday
  - sunday
- name: once
  workflow: report
  at: '2040-01-01T00:00:00Z'
"""

kinds = st.one_of(
    st.builds(lambda length: {"every": f"{length.total_seconds():f}s"}, intervals()),
    st.builds(lambda text: {"cron": text}, expressions | sparse_expressions),
    st.builds(lambda length: {"after": f"{length.total_seconds():f}s"}, intervals()),
    st.just({"every": "monthly"}),
)


async def exported(database: Database, **selection: Any) -> str:
    """What ``carillon export`` writes."""
    return await ExportService(database).export(OPERATOR, Selection(**selection))


async def test_an_export_is_what_was_applied(apply: Applying, database: Database) -> None:
    """In one order and without what goes without saying, a document for a namespace; to apply it changes nothing."""
    await apply(FULL)
    text = await exported(database)
    assert FULL.replace("1e3", "1000.0") == text.partition("---\n")[2]
    assert text == await exported(database, namespace="shop", owner="admin")
    told = await apply(text, prune=True)
    assert ([], []) == (told.lines, told.problems)
    with pytest.raises(NotFoundError, match="nothing to export"):
        await exported(database, namespace="shed")
    await apply(NIGHTLY.replace("shop", "shed"))
    text = await exported(database)
    assert ["shed", "shop"] == [line.split()[1] for line in text.splitlines() if line.startswith("namespace")]
    assert [] == (await apply(text)).lines
    with pytest.raises(NotFoundError, match="no user 'nobody'"):
        await exported(database, owner="nobody")


async def test_what_no_file_manages_is_written_for_a_namespace(
    carillon: Carillon, apply: Applying, database: Database
) -> None:
    """To apply it makes new ones beside them; two of a name get numbers, and what is done stays behind."""
    workflow = await carillon.workflow(name="w")
    for _ in range(2):
        await carillon.schedule(workflow, name="twin")
    await carillon.schedule(workflow, name="done", end_at="2020-01-01T00:00:00Z")
    mia = await carillon.member()
    await mia.schedule(name="hers")
    await apply(NIGHTLY)
    text = await exported(database, for_namespace="adopted", owner="admin")
    told = await apply(text)
    assert (["+ workflow w", "+ schedule twin", "+ schedule twin (2)"], []) == (told.lines, told.problems)
    assert [] == (await apply(text)).lines
    assert "hers" in await exported(database, for_namespace="all")
    for bad in ({"for_namespace": "no good"}, {"for_namespace": "x", "namespace": "y"}):
        with pytest.raises(InvalidError, match="namespace"):
            await exported(database, **bad)


async def test_a_workflow_from_elsewhere_comes_along(carillon: Carillon, apply: Applying, database: Database) -> None:
    """Under a name that is free."""
    await apply(NIGHTLY)
    elsewhere = await carillon.workflow(name="report", max_concurrent_runs=7)
    (nightly,) = (await carillon.call("GET", "/schedules/"))["items"]
    await carillon.call("PATCH", f"/schedules/{nightly['id']}/", json={"workflow_id": elsewhere["id"]})
    told = await apply(await exported(database))
    moved = f'~ schedule nightly  workflow: "id {elsewhere["id"]}" -> "report (2)"'
    assert ["+ workflow report (2)", moved] == told.lines


@examples(30)
@given(kinds, zones, windows(), excluded_days, st.sampled_from([Reason.MANUAL, Reason.INVALID_SPEC, None]))
def test_every_spec_reads_as_it_was(
    kind: dict[str, Any], zone: str, window: str | None, days: list[str], paused: Reason | None
) -> None:
    """The stored form is the same after a round trip."""
    try:
        job = schedule(**kind, timezone=zone, only_between=window, not_on=days)
    except (CarillonError, ValueError):
        reject()
    if paused is not None:
        job = replace(job, status=Status.PAUSED, status_reason=paused, next_run_at=None, next_slot=None)
    text = write_documents([{"namespace": "x", "schedules": [schedule_entry("s", "w", job)]}])
    file = read_file(Source("x.yaml", text.encode()), CATALOG)
    assert () == file.problems
    declared = file.items[0].declared
    stored = {name: getattr(job, name) for name in EDITABLE if name != "workflow_id"}
    assert [] == list(differences({**stored, "workflow": "w"}, declared.values))
    assert declared.paused is (paused is Reason.MANUAL)
