"""How many examples hypothesis tries: few and always the same, or ``EXAMPLES=n`` times as many, drawn at random."""

import os

from hypothesis import settings

FACTOR = int(os.environ.get("EXAMPLES", "1"))


def load_profile() -> None:
    """Make the settings below the default of every property: no deadline, as machines stall.

    A run without ``EXAMPLES`` draws the same examples for the same test, so that a change is not refused for a rare
    example that has nothing to do with it.
    """
    settings.register_profile("suite", deadline=None, derandomize="EXAMPLES" not in os.environ)
    settings.load_profile("suite")


def examples(number: int) -> settings:
    """Return settings for this number of examples, times ``EXAMPLES``."""
    return settings(max_examples=number * FACTOR)
