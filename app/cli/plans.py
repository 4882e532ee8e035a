"""Plans of changes as text: what changes, when the next run is, and which slots come and go."""

from collections.abc import Mapping
from typing import Any

from app.cli.output import json_text

MOST_SLOTS_SHOWN = 5


def plan_lines(plan: Mapping[str, Any]) -> list[str]:
    """Return a plan as lines: what changes, when the next run is, and which slots come and go."""
    return [*(f"  {line}" for line in _changes(plan.get("changes"))), *effect_lines(plan)]


def effect_lines(plan: Mapping[str, Any]) -> list[str]:
    """Return what a plan says of the coming runs as lines."""
    lines: list[str] = []
    next_run = plan.get("next_run_at") or {}
    if next_run.get("from") != next_run.get("to"):
        lines.append(f"  next run: {next_run.get('from') or 'none'} -> {next_run.get('to') or 'none'}")
    if plan.get("fires_now"):
        lines.append("  it fires at once")
    slots = plan.get("slots") or {}
    for word in ("added", "removed", "moved"):
        entries = slots.get(word) or []
        if entries:
            shown = ", ".join(_slot(entry) for entry in entries[:MOST_SLOTS_SHOWN])
            rest = f" and {len(entries) - MOST_SLOTS_SHOWN} more" if len(entries) > MOST_SLOTS_SHOWN else ""
            lines.append(f"  slots {word}: {shown}{rest}")
    return [*lines, *_losses(plan.get("lost") or {}), *(f"  warning: {one}" for one in plan.get("warnings") or ())]


def _losses(lost: Mapping[str, Any]) -> list[str]:
    """Return what a change gives up beside single slots."""
    lines = []
    if lost.get("repeats"):
        lines.append(f"  {lost['repeats']:,} repeats are lost")
    if lost.get("retry"):
        lines.append("  the pending retry is lost")
    if lost.get("days"):
        lines.append(f"  days without a slot that had one: {', '.join(map(str, lost['days'][:MOST_SLOTS_SHOWN]))}")
    return lines


def _changes(changes: Any) -> list[str]:
    """Return the changed fields as lines; a change has `from` and `to`."""
    if isinstance(changes, dict):
        changes = [{"field": name, **(one if isinstance(one, dict) else {"to": one})} for name, one in changes.items()]
    return [
        f"{one.get('field') or one.get('path')}: {json_text(one.get('from'), indent=-1)} -> "
        f"{json_text(one.get('to'), indent=-1)}"
        for one in changes or ()
        if isinstance(one, dict)
    ]


def _slot(entry: Any) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    if "from" in entry and "to" in entry:
        return f"{_slot(entry['from'])} -> {_slot(entry['to'])}"
    return str(entry.get("at") or entry.get("slot") or entry)
