"""Many at once, or each alone."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import structlog

from app.domain.errors import UnavailableError

T = TypeVar("T")
R = TypeVar("R")

log = structlog.get_logger(__name__)


async def all_or_each(
    act: Callable[[Sequence[T]], Awaitable[list[R]]],
    items: Sequence[T],
    event: str,
    failed: Callable[[T, Exception], Awaitable[None]],
    named: Callable[[T], dict[str, str]],
) -> list[R]:
    """Act on all items in one transaction; if one of them spoils it, on each in its own, so that it fails alone."""
    try:
        return await act(items)
    except UnavailableError:
        raise
    except Exception:
        log.exception(event, count=len(items))
    results: list[R] = []
    for item in items:
        try:
            results += await act([item])
        except UnavailableError:
            raise
        except Exception as error:
            log.exception(event, **named(item))
            await failed(item, error)
    return results
