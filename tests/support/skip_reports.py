"""Skips for what this machine cannot test, listed at the end of the run so that they are not overlooked."""

import os
from typing import NoReturn

import pytest

NOT_TESTED = "Not tested: "


def leave_untested(what: str, *, curable: bool = True) -> NoReturn:
    """Skip and list the reason at the end of the run; in CI fail instead, if what is missing can be installed."""
    if curable and os.environ.get("CI"):
        pytest.fail(NOT_TESTED + what, pytrace=False)
    pytest.skip(NOT_TESTED + what)


def say_what_was_left(reporter: pytest.TerminalReporter) -> None:
    """Print each reason once, in red."""
    reasons = {report.longrepr[2].partition(NOT_TESTED)[1:] for report in reporter.stats.get("skipped", [])}
    lines = sorted("".join(reason) for reason in reasons if all(reason))
    if lines:
        reporter.section("what was not tested", red=True, bold=True)
    for reason in lines:
        reporter.line(reason, red=True)
