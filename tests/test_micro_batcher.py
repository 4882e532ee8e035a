"""Callers ask one at a time; what they ask in one turn of the loop is done in one call."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.domain.errors import UnavailableError
from app.micro_batcher import MicroBatcher, batch_or_alone


class Doubling:
    """Doubles numbers, remembers the batches, and refuses the batches that hold a 13."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    async def __call__(self, numbers: Sequence[int]) -> list[int]:
        """Answer a batch."""
        self.batches.append(list(numbers))
        await asyncio.sleep(0)
        if 13 in numbers:
            raise ValueError("13 is refused")
        return [number * 2 for number in numbers]


async def test_what_is_asked_in_one_turn_is_one_batch() -> None:
    """Each caller gets its own answer."""
    doubling = Doubling()
    batcher = MicroBatcher("double", doubling)
    assert [2, 4, 6] == await asyncio.gather(*(batcher.ask(number) for number in (1, 2, 3)))
    assert [[1, 2, 3]] == doubling.batches
    assert batcher.is_idle


async def test_a_batch_is_never_larger_than_its_limit() -> None:
    """The rest goes in the next batch."""
    doubling = Doubling()
    batcher = MicroBatcher("double", doubling, most=2)
    assert [2, 4, 6] == await asyncio.gather(*(batcher.ask(number) for number in (1, 2, 3)))
    assert [[1, 2], [3]] == doubling.batches


async def test_an_item_that_breaks_its_batch_fails_alone() -> None:
    """The others are done again, one by one."""
    doubling = Doubling()
    batcher = MicroBatcher("double", doubling)
    one, broken, two = await asyncio.gather(*(batcher.ask(number) for number in (1, 13, 2)), return_exceptions=True)
    assert (2, 4) == (one, two)
    assert isinstance(broken, ValueError)
    assert [[1, 13, 2], [1], [13], [2]] == doubling.batches


async def test_an_error_that_is_shared_fails_the_whole_batch() -> None:
    """Doing each item again would only repeat it."""
    doubling = Doubling()
    batcher = MicroBatcher("double", doubling, shared=(ValueError,))
    answers = await asyncio.gather(*(batcher.ask(number) for number in (1, 13)), return_exceptions=True)
    assert [ValueError, ValueError] == [type(answer) for answer in answers]
    assert [[1, 13]] == doubling.batches


async def test_a_caller_that_gives_up_stops_no_other() -> None:
    """Its item is part of the batch all the same."""
    doubling = Doubling()
    batcher = MicroBatcher("double", doubling)
    cancelled, waiting = batcher.ask(1), batcher.ask(2)
    cancelled.cancel()
    assert 4 == await waiting
    assert [[1, 2]] == doubling.batches


async def test_quiet_waits_for_what_nobody_awaits() -> None:
    """``tell`` gives no answer, and still is done."""
    doubling = Doubling()
    batcher = MicroBatcher("double", doubling)
    batcher.tell(1)
    assert not batcher.is_idle
    await batcher.quiet()
    assert [[1]] == doubling.batches


async def test_each_item_of_a_broken_batch_has_its_result_or_its_error() -> None:
    """An error that is shared is the answer to its item, once items are done alone: earlier results stand."""
    doubling = Doubling()
    results = await batch_or_alone("double", doubling, [1, 13, 2], ())
    assert [2, ValueError, 4] == [result if isinstance(result, int) else type(result) for result in results]

    async def away_at_two(numbers: Sequence[int]) -> list[int]:
        if list(numbers) == [2]:
            raise UnavailableError
        return await doubling(numbers)

    doubling.batches.clear()
    results = await batch_or_alone("double", away_at_two, [1, 13, 2, 3], (UnavailableError,))
    shown = [result if isinstance(result, int) else type(result) for result in results]
    assert [2, ValueError, UnavailableError, UnavailableError] == shown
    # The item after the outage is not tried.
    assert [[1, 13, 2, 3], [1], [13]] == doubling.batches


async def test_an_item_of_a_broken_batch_has_its_result_before_the_others_are_tried() -> None:
    """What was claimed runs at once, however long the rest of its batch takes."""
    slow = asyncio.Event()

    async def act(numbers: Sequence[int]) -> list[int]:
        if len(numbers) > 1:
            raise ValueError
        if list(numbers) == [2]:
            await slow.wait()
        return list(numbers)

    batcher = MicroBatcher("double", act)
    first, second = batcher.ask(1), batcher.ask(2)
    assert 1 == await asyncio.wait_for(first, 10)
    assert not second.done()
    slow.set()
    assert 2 == await second


async def test_a_store_that_is_away_is_no_item_s_fault() -> None:
    """The error goes to the caller and nothing is tried again."""
    calls: list[Sequence[int]] = []

    async def away(numbers: Sequence[int]) -> list[int]:
        calls.append(numbers)
        raise UnavailableError

    with pytest.raises(UnavailableError):
        await batch_or_alone("double", away, [1, 2], (UnavailableError,))
    assert [[1, 2]] == calls


async def test_results_are_handed_to_whoever_wants_no_future() -> None:
    """A result, an error, and a caller that raises, which is no concern of the others."""
    doubling, results = Doubling(), list[Any]()
    batcher = MicroBatcher("double", doubling)

    def refuse(_result: int | BaseException) -> None:
        raise RuntimeError("a defect of a caller")

    with capture_logs() as events:
        batcher.submit(1, refuse)
        batcher.submit(2, results.append)
        batcher.submit(13, results.append)
        await batcher.quiet()
    assert 4 == results[0]
    assert "13 is refused" == str(results[1])
    assert ["batch_retried_individually", "batch_result_refused"] == [event["event"] for event in events]
