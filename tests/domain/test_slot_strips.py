"""Spans in which nothing fires, and slots to come."""

from datetime import UTC, datetime, timedelta

import pytest

from app.domain.slot_strips import SpanKind, Turn, off_spans

START = datetime(2026, 3, 1, tzinfo=UTC)


def at(hours: int) -> datetime:
    """Return a moment some hours after the start."""
    return START + timedelta(hours=hours)


def turns(*hours: int) -> list[Turn]:
    """Return turns at these hours: off, on, off and so on."""
    return [Turn(at(hour), is_off=not index % 2, by="ann", note=f"n{hour}") for index, hour in enumerate(hours)]


@pytest.mark.parametrize(
    ("hours", "since", "until", "expected"),
    [
        ((), None, None, []),
        ((1, 2), None, None, [(1, 2)]),
        ((1, 2, 5), None, None, [(5, None), (1, 2)]),
        ((1, 2, 5), 3, None, [(5, None)]),
        ((1, 2, 5), None, 4, [(1, 2)]),
        ((1, 2, 5, 7), 6, 6, [(5, 7)]),
    ],
)
def test_spans_lie_between_turns(
    hours: tuple[int, ...], since: int | None, until: int | None, expected: list[tuple[int, int | None]]
) -> None:
    """Newest first, and only those that touch the asked time."""
    bounds = [None if hour is None else at(hour) for hour in (since, until)]
    spans = off_spans(SpanKind.PAUSED, turns(*hours), *bounds)
    assert [(at(first), None if last is None else at(last)) for first, last in expected] == [
        (span.first, span.last) for span in spans
    ]
    assert all(span.by == "ann" for span in spans)


def test_a_second_turn_off_does_not_begin_anew() -> None:
    """The first one says who and why."""
    twice = [Turn(at(1), is_off=True, by="ann", note="a"), Turn(at(2), is_off=True, by="bob", note="b")]
    (span,) = off_spans(SpanKind.DISABLED, twice)
    assert (at(1), None, "ann", "a") == (span.first, span.last, span.by, span.note)
