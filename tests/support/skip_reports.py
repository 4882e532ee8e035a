"""What could not be tested here is not passed over in silence."""

import os
from typing import NoReturn

import pytest

NOT_TESTED = "Not tested: "


def leave_untested(what: str, *, curable: bool = True) -> NoReturn:
    """Skip, to be said once more at the end of the run; fail where the run is a gate that could have had it."""
    if curable and os.environ.get("CI"):
        pytest.fail(NOT_TESTED + what, pytrace=False)
    pytest.skip(NOT_TESTED + what)


def say_what_was_left(reporter: pytest.TerminalReporter) -> None:
    """Each reason once, at the end and in red."""
    reasons = {report.longrepr[2].partition(NOT_TESTED)[1:] for report in reporter.stats.get("skipped", [])}
    told = sorted("".join(reason) for reason in reasons if all(reason))
    if told:
        reporter.section("what was not tested", red=True, bold=True)
    for reason in told:
        reporter.line(reason, red=True)
