"""What an ``apply`` did, for people: a line for each thing, and one for all."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
from rich.text import Text

from app.domain.declarations import Act, Step
from app.domain.differences import ABSENT, Difference
from app.domain.schedules import Status

LONGEST_VALUE = 60
MARKS = {
    Act.CREATE: ("+", "green"),
    Act.CHANGE: ("~", "yellow"),
    Act.KEEP: ("=", "dim"),
    Act.DELETE: ("-", "red"),
    Act.LEAVE: ("?", "cyan"),
}
WORDS = {Act.CREATE: "created", Act.CHANGE: "changed", Act.KEEP: "unchanged", Act.DELETE: "deleted", Act.LEAVE: "left"}


def diff_lines(steps: Iterable[Step], *, verbose: bool) -> list[Text]:
    """A line for each thing that is not as it was, or, if that is wanted, for each."""
    shown = [step for step in steps if verbose or step.act is not Act.KEEP]
    several = len({step.key.namespace for step in shown}) > 1
    return [_line(step, several=several) for step in shown]


def summary(counts: Counter[Act], *, dry_run: bool) -> str:
    """How many of each."""
    told = [f"{counts[act]} {word}" for act, word in WORDS.items() if act is not Act.LEAVE or counts[act]]
    return f"{'Dry run, nothing is written: ' if dry_run else ''}{', '.join(told)}."


def _line(step: Step, *, several: bool) -> Text:
    mark, style = MARKS[step.act]
    name = f"{step.key.namespace}/{step.key.name}" if several else step.key.name
    parts = (f"{mark} {step.key.kind} {name}", ", ".join(map(_difference, step.differences)), _remark(step))
    return Text("  ".join(part for part in parts if part), style=style)


def _remark(step: Step) -> str:
    if step.act is Act.LEAVE:
        return "(no longer declared; --prune deletes it)"
    return "" if step.act is Act.DELETE or step.status in {None, Status.ACTIVE} else f"({step.status})"


def _difference(one: Difference) -> str:
    return f"{one.path}: {_value(one.before)} -> {_value(one.after)}"


def _value(value: Any) -> str:
    if value is ABSENT:
        return "nothing"
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    text = msgspec.json.encode(whole).decode()
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."
