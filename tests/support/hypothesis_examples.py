"""How many examples hypothesis tries: few in every run, and ``EXAMPLES=n`` times as many where there is time."""

import os

from hypothesis import settings

FACTOR = int(os.environ.get("EXAMPLES", "1"))


def examples(number: int) -> settings:
    """Return settings for this number of examples, times ``EXAMPLES``, without a deadline, as machines stall."""
    return settings(max_examples=number * FACTOR, deadline=None)
