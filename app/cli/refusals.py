"""Bad input has an exit code of its own: trying again does not help."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from app.domain.errors import CarillonError, UnavailableError

BAD_INPUT = 2


@contextmanager
def bad_input() -> Iterator[None]:
    """What is refused within is said in one line."""
    try:
        yield
    except UnavailableError:
        raise
    except CarillonError as error:
        say_problems([f"carillon: {error}"])
        sys.exit(BAD_INPUT)


def say_problems(problems: list[str]) -> None:
    """One line each, beside the output."""
    console = Console(stderr=True)
    for problem in problems:
        console.print(Text(problem, style="red"), soft_wrap=True)
