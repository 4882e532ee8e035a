"""What objects of Kubernetes declare, which of them has a name, and what their status says."""

from datetime import UTC, datetime
from typing import Any

import pytest

from app.domain.declarations import Kind
from app.domain.kubernetes_objects import (
    MOST_BATCH_BYTES,
    DeletionPolicy,
    Observation,
    Reason,
    Resource,
    Verdict,
    batches,
    claimants,
    declared,
    document_of,
    needs_pass,
    refusals,
    resource_of,
    status_patch,
)

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def schedule(name: str, **fields: Any) -> Resource:
    """Return an object that declares a schedule."""
    return Resource(kind=Kind.SCHEDULE, namespace="shop", name=name, uid=name, generation=1, **fields)


def test_an_object_is_read_as_the_api_server_writes_it() -> None:
    """What is absent has a default: a new object has neither finalizers nor a status."""
    metadata = {"name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 2}
    found = resource_of(Kind.WORKFLOW, {"metadata": metadata, "spec": {"nodes": []}})
    assert ("a", "shop", "7", 2, False, (), {}) == (
        *(found.name, found.namespace, found.resource_version, found.generation),
        *(found.is_deleting, found.finalizers, found.status),
    )
    deleting = {**metadata, "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]}
    assert resource_of(Kind.WORKFLOW, {"metadata": deleting}).is_deleting


def test_a_document_has_the_spec_under_its_name() -> None:
    """The name is that of the spec, else that of the object; the policy is not a field of a document."""
    spec = {"cron": "0 2 * * *", "deletionPolicy": "keep"}
    expected = {"namespace": "c1.shop", "schedules": [{"cron": "0 2 * * *", "name": "nightly"}]}
    assert expected == document_of(schedule("nightly", spec=spec), "c1.shop")
    named = schedule("nightly", spec={**spec, "name": "Nightly report"})
    assert "Nightly report" == document_of(named, "shop")["schedules"][0]["name"]


@pytest.mark.parametrize(("given", "policy"), [(None, "delete"), ("pause", "pause"), ("surprise", "delete")])
def test_the_policy_has_a_default(given: str | None, policy: str) -> None:
    """An object that an older definition let through is treated as if it had none."""
    assert DeletionPolicy(policy) is schedule("a", spec={"deletionPolicy": given}).deletion_policy


def test_the_oldest_object_has_the_name() -> None:
    """A name has one object; what is being deleted keeps it and is not applied. Workflows come first."""
    older = schedule("b", created_at="2026-01-01T00:00:00Z", spec={"name": "x"})
    newer = schedule("a", created_at="2026-01-02T00:00:00Z", spec={"name": "x"})
    flow = Resource(kind=Kind.WORKFLOW, namespace="shop", name="x")
    assert {(Kind.SCHEDULE, "x"): older, (Kind.WORKFLOW, "x"): flow} == claimants([newer, older, flow])
    assert [flow, older] == declared([newer, older, flow])
    gone = schedule("b", created_at=older.created_at, spec={"name": "x"}, is_deleting=True)
    assert [flow] == declared([newer, gone, flow])


def test_only_a_change_of_what_is_declared_needs_a_pass() -> None:
    """The operator's own writes to the status would make it run for ever."""
    before = schedule("a", resource_version="1")
    assert not needs_pass(before, schedule("a", resource_version="2", status={"id": "x"}, finalizers=("f",)))
    assert needs_pass(before, schedule("a", resource_version="2", is_deleting=True))
    assert needs_pass(None, before)
    assert needs_pass(before, None)


def test_requests_stay_within_the_bound() -> None:
    """Large documents are sent in several requests, in their order; one that is too large goes alone."""
    text = "x" * (MOST_BATCH_BYTES // 3)
    objects = [schedule(f"s{number}", spec={"description": text}) for number in range(5)]
    assert [2, 2, 1] == [len(group) for group in batches(objects, "shop")]
    assert objects == [one for group in batches(objects, "shop") for one in group]
    assert [[]] == batches([], "shop")


def test_errors_are_told_by_document_and_field() -> None:
    """What names no object concerns all of them, such as a namespace of another owner."""
    objects = [schedule("a"), schedule("b")]
    errors = [
        {"field": "documents[1]", "message": "schedule 'b': cron: No."},
        {"field": "documents[1]", "message": "schedule 'b': workflow: None."},
        {"field": "documents[0]", "message": "namespace: It belongs to another user."},
        {"field": "documents[9]", "message": "schedule 'z': x"},
        {"field": "documents", "message": "Too many."},
    ]
    found = refusals(errors, objects)
    assert {1: ("cron: No.", "workflow: None.")} == found.by_index
    assert ("namespace: It belongs to another user.", "schedule 'z': x", "Too many.") == found.of_all


def test_the_status_changes_only_where_it_differs() -> None:
    """The time of a condition is that of its last change between true and false; conditions of others stay."""
    other = {"type": "Seen", "status": "True"}
    seen = Observation(id="7", state="active", next_run_at="2026-05-02T00:00:00Z")
    ready = Verdict(Reason.APPLIED, "ok")
    patch = status_patch(schedule("a", status={"conditions": [other]}), ready, seen, NOW)
    assert patch is not None
    assert other == patch["conditions"][0]
    condition = patch["conditions"][1]
    assert ("Ready", "True", "Applied", "2026-05-01T12:00:00Z") == (
        *(condition["type"], condition["status"]),
        *(condition["reason"], condition["lastTransitionTime"]),
    )
    stored = schedule("a", status={**patch, "lastOutcome": None})
    later = datetime(2026, 5, 1, 13, 0, tzinfo=UTC)
    assert stored.is_ready
    assert None is status_patch(stored, ready, seen, later)
    moved = Observation(id="7", state="active", next_run_at="2026-05-03T00:00:00Z", last_outcome="fired")
    assert {"nextRunAt": "2026-05-03T00:00:00Z", "lastOutcome": "fired"} == status_patch(stored, ready, moved, later)
    broken = status_patch(stored, Verdict(Reason.INVALID, "cron: " + "x" * 9000), Observation(id="7"), later)
    assert broken is not None
    assert ("2026-05-01T13:00:00Z", "False") == tuple(
        broken["conditions"][1][name] for name in ("lastTransitionTime", "status")
    )
    assert len(broken["conditions"][1]["message"]) == 4000
    # A merge patch removes what is null.
    assert None is broken["nextRunAt"]
