"""What is computed once for each route handler, and forgotten with its application."""

from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from litestar.handlers import BaseRouteHandler

T = TypeVar("T")


def once_for_each_handler(compute: Callable[[BaseRouteHandler], T]) -> Callable[[Any], T]:
    """Remember what a function returns for a handler, for as long as the handler is used."""
    known: WeakKeyDictionary[BaseRouteHandler, T] = WeakKeyDictionary()

    def computed(handler: BaseRouteHandler) -> T:
        try:
            return known[handler]
        except KeyError:
            return known.setdefault(handler, compute(handler))
        except TypeError:
            # Litestar's own handlers of OPTIONS have slots and take no weak reference.
            return compute(handler)

    return computed
