"""Computed names."""

from datetime import timedelta
from uuid import RFC_4122, uuid4

from app.domain.run_ids import execution_id, idempotency_key, manual_execution_id
from tests.support.domain_builders import JOB, T0, after


def test_the_same_fire_is_the_same_execution() -> None:
    """Schedule, slot and attempt name it; each of them matters."""
    same = execution_id(JOB, T0, 0)
    assert same == execution_id(JOB, T0, 0)
    others = {
        execution_id(uuid4(), T0, 0),
        execution_id(JOB, T0 + timedelta(microseconds=1), 0),
        execution_id(JOB, T0, 1),
    }
    assert same not in others
    assert 3 == len(others)


def test_execution_ids_are_valid_and_sort_by_slot() -> None:
    """Version 8, the standard variant, and the slot's milliseconds in front."""
    ids = [execution_id(JOB, after(k), 0) for k in range(100)]
    assert ids == sorted(ids)
    assert {(8, RFC_4122)} == {(one.version, one.variant) for one in ids}
    assert int(T0.timestamp() * 1000) == ids[0].int >> 80


def test_two_manual_runs_in_one_moment_are_two() -> None:
    """The nonce tells them apart."""
    assert manual_execution_id(JOB, T0, "a") != manual_execution_id(JOB, T0, "b")


def test_the_idempotency_key_is_per_slot_and_node() -> None:
    """Attempts share it, as it does not know of them."""
    slots_and_nodes = ((T0, "call"), (after(1), "call"), (T0, "x"))
    keys = [idempotency_key(str(JOB), slot, node) for slot, node in slots_and_nodes]
    assert keys == [idempotency_key(str(JOB), slot, node) for slot, node in slots_and_nodes]
    assert 3 == len(set(keys))
