"""Ductile's configuration: the schedules of its plugins."""

import math
from collections.abc import Iterator
from typing import Any

from app.domain.local_time import canonical_zone
from app.domain.specs import parse_duration
from app.services.declarations.yaml_text import Document, read_documents
from app.services.imports.conversion import NO_TIMEZONE, Conversion, Job, Notices

KINDS = ("every", "cron", "at", "after")
DEFAULT_ID = "default"
DEFAULT_COMMAND = "poll"
# A queue of Ductile has no bound; one of Carillon has.
MAX_QUEUED = 100

QUEUE = (
    f"if_running: queue runs one after another, and at most {MAX_QUEUED} wait (max_queued); Ductile enqueues every run."
)
AFTER = "after is counted from the first apply, not from each start of the service."
CATCH_UP = "catch_up is left out: in Ductile it has an effect on `every` only."
JITTER = "jitter is left out: in Ductile it has an effect on `every` only."
DISABLED = "the plugin is not enabled: the schedule is declared as paused."
OTHER_SECTIONS = "has no counterpart; only the schedules of `plugins` are converted."

_COPIED = ("if_running", "only_between")
_KNOWN = {*KINDS, *_COPIED, "id", "command", "jitter", "catch_up", "timezone", "not_on", "payload"}
_OF_PLUGIN = {"enabled", "schedule", "schedules"}


def read_ductile(text: str, timezone: str | None) -> Conversion:
    """Return the schedules of a configuration. Raise ``YamlProblemError`` if the text is not YAML."""
    notices = Notices()
    jobs = []
    for document in read_documents(text):
        for place, plugin, entry, enabled in _entries(document, notices):
            line = document.line_of(place)
            try:
                jobs.append(_job(line, plugin, entry, timezone, notices, enabled=enabled))
            except ValueError as error:
                notices.leave_out(line, f"schedule of '{plugin[:60]}': {error}")
    return Conversion(tuple(jobs), notices.all())


def _entries(document: Document, notices: Notices) -> Iterator[tuple[str, str, Any, bool]]:
    """Yield the schedules of all plugins: the place, the plugin, the entry, and whether the plugin is enabled."""
    value = document.value
    plugins = value.get("plugins") if isinstance(value, dict) else None
    if not isinstance(plugins, dict):
        notices.leave_out(document.line_of(""), "there are no `plugins` in this document.")
        return
    for section in value:
        if section != "plugins":
            notices.warn(document.line_of(section), f"'{section[:60]}' {OTHER_SECTIONS}")
    for name, plugin in plugins.items():
        place = f"plugins.{name}"
        if not isinstance(plugin, dict):
            notices.leave_out(document.line_of(place), f"the plugin '{name[:60]}' is not an object.")
            continue
        for field in plugin:
            if field not in _OF_PLUGIN:
                notices.warn(document.line_of(f"{place}.{field}"), f"'{field[:60]}' of a plugin has no counterpart.")
        enabled = plugin.get("enabled", True) is True
        yield from ((at, name, entry, enabled) for at, entry in _schedules(place, plugin))


def _schedules(place: str, plugin: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    if plugin.get("schedule") is not None:
        yield f"{place}.schedule", plugin["schedule"]
    entries = plugin.get("schedules")
    if isinstance(entries, list):
        yield from ((f"{place}.schedules[{index}]", entry) for index, entry in enumerate(entries))
    elif entries is not None:
        yield f"{place}.schedules", entries


def _job(line: int, plugin: str, entry: Any, timezone: str | None, notices: Notices, *, enabled: bool) -> Job:
    """Return the schedule of an entry. Raise ``ValueError`` with the reason if it has none."""
    if not isinstance(entry, dict):
        raise ValueError("it is not an object.")  # noqa: TRY004 - about the input, not about code
    kinds = [kind for kind in KINDS if entry.get(kind) is not None]
    if len(kinds) != 1:
        raise ValueError(f"exactly one of {', '.join(KINDS)} must be given.")
    (kind,) = kinds
    command = f"{plugin} {entry.get('command') or DEFAULT_COMMAND}"
    fields = {
        "description": f"Ductile: {command}",
        kind: entry[kind],
        **_zone(entry, timezone),
        **_interval_fields(kind, entry),
        **{field: entry[field] for field in _COPIED if entry.get(field) is not None},
        **({"max_queued": MAX_QUEUED} if entry.get("if_running") == "queue" else {}),
        **_not_on(entry),
        "trigger_payload": _payload(plugin, entry),
        **({} if enabled else {"paused": True}),
    }
    for warning in _warnings(kind, entry, fields, enabled=enabled):
        notices.warn(line, warning)
    label = f"{plugin}/{entry.get('id') or DEFAULT_ID}"
    return Job(line=line, label=label, variant=str(entry[kind]), command=command, fields=fields)


def _zone(entry: dict[str, Any], timezone: str | None) -> dict[str, Any]:
    if entry.get("timezone") is not None:
        return {"timezone": canonical_zone(str(entry["timezone"]))}
    return {} if timezone is None else {"timezone": timezone}


def _interval_fields(kind: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Return what applies to intervals only."""
    if kind != "every":
        return {}
    catch_up = {} if entry.get("catch_up") is None else {"catch_up": entry["catch_up"]}
    if entry.get("jitter") is None:
        return catch_up
    return {**catch_up, "jitter_seconds": math.ceil(parse_duration(str(entry["jitter"])).total_seconds())}


def _not_on(entry: dict[str, Any]) -> dict[str, Any]:
    days = entry.get("not_on")
    if days is None:
        return {}
    return {"not_on": days if isinstance(days, list) else [days]}


def _payload(plugin: str, entry: dict[str, Any]) -> dict[str, Any]:
    payload = entry.get("payload")
    if payload is not None and not isinstance(payload, dict):
        raise ValueError("payload is not an object.")
    return {"plugin": plugin, "command": entry.get("command") or DEFAULT_COMMAND, **(payload or {})}


def _warnings(kind: str, entry: dict[str, Any], fields: dict[str, Any], *, enabled: bool) -> Iterator[str]:
    """Yield what differs from Ductile."""
    for field in entry:
        if field not in _KNOWN:
            yield f"'{field[:60]}' of a schedule has no counterpart."
    if kind != "every" and entry.get("catch_up") not in (None, "skip"):
        yield CATCH_UP
    if kind != "every" and entry.get("jitter") is not None:
        yield JITTER
    if kind == "after":
        yield AFTER
    if entry.get("if_running") == "queue":
        yield QUEUE
    if "timezone" not in fields and (kind == "cron" or "only_between" in fields or "not_on" in fields):
        yield NO_TIMEZONE
    taken = {"plugin", "command"} & set(entry.get("payload") or {})
    for name in sorted(taken):
        yield f"the payload's own '{name}' is kept; the {name} of the schedule is not in trigger_payload."
    if not enabled:
        yield DISABLED
