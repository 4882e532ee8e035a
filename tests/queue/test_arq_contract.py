"""What our worker relies on in arq 0.28.0: a new version that changes one of these turns this red.

Covers app.engine.queue_port, app.queue.lua_scripts, app.queue.message_format.
"""

from importlib.metadata import version

import msgspec
import pytest
from arq import constants
from arq.worker import Retry

from app.engine.queue_port import EXECUTE, Redeliver, Wake, tick_wake
from app.queue import lua_scripts, message_format
from app.queue.bell import RedisPool
from app.queue.worker import stock_arq_function
from tests.support.domain_builders import T0, schedule


def test_the_version_is_the_one_that_was_measured() -> None:
    """Pinned exactly."""
    assert "0.28.0" == version("arq")


def test_the_key_names_in_the_scripts_are_arqs() -> None:
    """Stock producers and stock workers share the queue with ours."""
    assert "arq:queue" == message_format.QUEUE == constants.default_queue_name
    assert "arq:job:" == constants.job_key_prefix
    assert "arq:in-progress:" == constants.in_progress_key_prefix
    assert "arq:retry:" == constants.retry_key_prefix
    for script in (lua_scripts.RING, lua_scripts.CLAIM, lua_scripts.FINISH):
        assert constants.job_key_prefix in script


async def test_a_stock_producers_message_reads_like_ours(redis: RedisPool) -> None:
    """The same body, but for the time of its making."""
    job = schedule()
    await redis.enqueue_job("execute_scheduled_job", str(job.id), 7, _job_id="stock")
    stored = await redis.get("arq:job:stock")
    message = message_format.to_message(b"stock", stored)
    assert ("execute_scheduled_job", (str(job.id), 7), {}) == (message.function, message.args, message.kwargs)
    ours = msgspec.msgpack.decode(message_format.body_of(tick_wake(job)))
    theirs = msgspec.msgpack.decode(stored)
    assert theirs.keys() == ours.keys()


def test_the_id_names_the_state_that_it_wakes() -> None:
    """Deterministic, with n and rc for people and the generation for the fence."""
    job = schedule()
    assert f"sched-{job.id}-n0-rc0-g{job.generation}" == tick_wake(job).id
    assert tick_wake(job) == tick_wake(job)


def test_scores_are_rounded_up() -> None:
    """So that the bell never rings before the database says that it is time."""
    due = T0.replace(microsecond=1001)
    wake = Wake("x", "f", (), due)
    assert int(T0.timestamp() * 1000) + 2 == message_format.score_of(wake)


async def test_redelivery_is_a_retry_for_stock_arq() -> None:
    """The stock function raises arq's Retry, with the delay in milliseconds."""

    async def redeliver(_delivered: None, _job_id: str, _generation: int) -> None:
        raise Redeliver(1.5)

    function = stock_arq_function(EXECUTE)
    with pytest.raises(Retry) as retry:
        await function.coroutine({"handlers": {EXECUTE: redeliver}}, str(schedule().id), 1)
    assert (EXECUTE, 1500) == (function.name, retry.value.defer_score)


async def test_stock_arq_calls_no_handler_with_forged_arguments() -> None:
    """The arguments are checked before the handler is looked up."""
    await stock_arq_function(EXECUTE).coroutine({"handlers": {}}, "no id", 1)


def test_redelivery_is_never_at_once_nor_later_than_a_minute() -> None:
    """By then what the message is about may have changed."""
    assert [0.001, 2, 60] == [Redeliver(seconds).seconds for seconds in (-1, 2, 3600)]
