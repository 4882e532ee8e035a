"""``carillon schedule``: the verbs that read."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from app.cli import names
from app.cli.fields import Sets, assignments, labels_of
from app.cli.lookup import find_schedule, find_workflow
from app.cli.options import LIST, PRINT, SHOW, List, Listing, Print, Printing, Show
from app.cli.output import Shape, columns, print_item, printable, say, show_item, show_list, write
from app.client.connection import Connection, Page
from app.client.errors import ApiError, ClientError, Exit

SCHEDULE = Shape(
    "schedule",
    columns(
        *("id", "name", "status", "health", "timing", "next_run_at:next run", "last_outcome"),
        wide=("timezone", "workflow_name", "key", "labels", "last_attempt_at", "run_count", "error_count"),
    ),
)
SLOT = Shape(
    "slot", columns("slot", "outcome", "status", "lateness_ms", "duration_ms", "attempts", "execution_id"), "slot"
)
CHANGE = Shape("change", columns("at", "by", "action", "changes", "note"), "at")
COMING = Shape(
    "slot", columns("at", "slot", "schedule_name:schedule", "schedule_id", wide=("workflow_name", "timezone")), "at"
)
# The API's own bound of a list that has no pages.
MOST_COMING = 500
METHOD_NOT_ALLOWED = 405
# How a server answers a path that it does not have.
NO_ROUTE = ("Not Found", "There is nothing at this path.")

Name = Annotated[
    str, Parameter(completer=names.schedules, help="The id, the beginning of the id, the key or the name.")
]
Since = Annotated[str, Parameter(name="--from", help="The beginning of a range, such as 2030-01-31T00:00:00Z.")]
Until = Annotated[str, Parameter(name="--to", help="The end of a range.")]
Status = Literal["active", "paused", "done", "dead"]
Health = Literal["healthy", "late", "failing", "silent", "never_ran", "paused", "dead", "invalid", "done"]


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Which schedules a list has."""

    label: Annotated[
        list[str] | None, Parameter(name=("--label", "-l"), negative=(), help="A label as key=value; may be repeated.")
    ] = None
    status: Annotated[Status | None, Parameter(help="The status.")] = None
    health: Annotated[Health | None, Parameter(help="The health.")] = None
    q: Annotated[
        str, Parameter(name=("--query", "-q"), allow_leading_hyphen=True, help="A part of the name or the key.")
    ] = ""
    workflow: Annotated[
        str, Parameter(completer=names.workflows, help="The id, the key or the name of the workflow.")
    ] = ""
    namespace: Annotated[str, Parameter(help="The namespace of files.")] = ""
    kind: Annotated[
        Literal["interval", "cron", "once", "monthly", "rrule"] | None, Parameter(help="The kind of the timing.")
    ] = None
    team: Annotated[int | None, Parameter(help="The id of a team.")] = None
    target_host: Annotated[str, Parameter(help="A part of the host that their workflows call.")] = ""

    def params(self, connection: Connection) -> dict[str, Any]:
        """Return the parameters of the API's list."""
        return {
            "label": self.label,
            "status": self.status,
            "health": self.health,
            "q": self.q,
            "workflow_id": find_workflow(connection, self.workflow) if self.workflow else None,
            "namespace": self.namespace,
            "kind": self.kind,
            "team_id": self.team,
            "target_host": self.target_host,
        }


@dataclass(frozen=True, kw_only=True)
class Timing:
    """When a schedule runs."""

    every: Annotated[str, Parameter(help="An interval, such as 5m or 1h30m.")] = ""
    cron: Annotated[str, Parameter(help="A cron expression of five fields.")] = ""
    at: Annotated[str, Parameter(help="One time, such as 2030-01-31T08:00:00Z.")] = ""
    after: Annotated[str, Parameter(help="Once, after a duration such as 10m.")] = ""
    rrule: Annotated[str, Parameter(help="A recurrence rule of iCalendar.")] = ""
    timezone: Annotated[str, Parameter(help="The timezone, such as Europe/Berlin.")] = ""

    def fields(self) -> dict[str, str]:
        """Return the fields that are given."""
        values = {name: getattr(self, name) for name in ("every", "cron", "at", "after", "rrule", "timezone")}
        return {name: value for name, value in values.items() if value}


NO_FILTERS = Filters()
NO_TIMING = Timing()


def timing_of(schedule: Any) -> str:
    """Return when a schedule runs, in a few characters."""
    for name in ("cron", "every", "at", "after", "rrule"):
        if schedule.get(name):
            return str(schedule[name])
    seconds = schedule.get("interval_seconds")
    return f"every {seconds} s" if seconds else ""


def with_timing(pages: Iterable[Page], options: Printing) -> Iterable[Page]:
    """Add the column `timing` to what tables show; other forms are exactly the API's."""
    if options.form not in {"table", "wide", "csv"}:
        return pages
    return (Page([{**item, "timing": timing_of(item)} for item in page.items], page.members) for page in pages)


def list_schedules(*, filters: Annotated[Filters, Parameter(name="*")] = NO_FILTERS, options: List = LIST) -> None:
    """List schedules, newest first."""
    with options.connect() as connection:
        params = {**filters.params(connection), "sort": options.sort, "fields": _asked_fields(options)}

        def fetch() -> Iterable[Page]:
            return with_timing(connection.pages("/schedules/", params, options.limit), options)

        show_list(fetch, replace(options, sort=""), SCHEDULE)


def _asked_fields(options: Listing) -> str:
    """Return the fields to ask the API for; `timing` is made of others."""
    return ",".join(name for name in options.field_names if name != "timing") if "timing" not in options.fields else ""


def get(name: Name, /, *, options: Show = SHOW) -> None:
    """Show one schedule."""
    with options.connect() as connection:
        schedule_id = find_schedule(connection, name)

        def fetch() -> Any:
            schedule = connection.get(f"/schedules/{schedule_id}/")
            # Rows have the column `timing`: those of csv, and in a pipe each change.
            in_rows = options.form == "csv" or (options.watch and options.form in {"table", "wide"})
            return {**schedule, "timing": timing_of(schedule)} if in_rows else schedule

        show_item(fetch, options, SCHEDULE)


def explain(
    name: Name, /, *, at: Annotated[str, Parameter(help="A time; by default now.")] = "", options: Print = PRINT
) -> None:
    """Say why a schedule did or did not run at a time, with the checks that decided it."""
    with options.connect() as connection:
        answer = connection.get(f"/schedules/{find_schedule(connection, name)}/explain/", {"at": at})
    if options.form != "table":
        print_item(answer, options, Shape("slot", (), "slot"))
        return
    write(f"{printable(answer['sentence'])}\n")
    for check in answer["checks"]:
        write(f"  {'ok  ' if check['passed'] else 'FAIL'}  {check['check']}: {printable(check['detail'])}\n")


def preview(
    name: Annotated[str, Parameter(completer=names.schedules, help="A schedule, or nothing to give a timing.")] = "",
    /,
    *,
    timing: Annotated[Timing, Parameter(name="*")] = NO_TIMING,
    sets: Sets = None,
    count: Annotated[int, Parameter(help="The number of runs to show.")] = 10,
    options: Print = PRINT,
) -> None:
    """Describe a timing in plain words, with its next runs. Nothing is stored."""
    with options.connect() as connection:
        spec = _spec_of(connection, name) if name else {}
        answer = connection.call(
            "POST", "/schedules/preview/", {**spec, **timing.fields(), **assignments(sets), "count": count}
        )
    if options.form != "table":
        print_item(answer, options, Shape("preview", (), "description"))
        return
    write(f"{printable(answer['description'])}\n")
    for run in answer["next_runs"]:
        write(f"  {run['at']}  {printable(run['note'])}".rstrip() + "\n")
    for warning in answer["warnings"]:
        say(f"warning: {printable(warning)}")


SPEC_FIELDS = (
    *("interval_seconds", "every", "cron", "at", "after", "rrule", "timezone", "jitter_seconds", "only_between"),
    *("not_on", "start_at", "end_at", "exclude_calendars", "only_calendars", "timeout_seconds"),
)


def _spec_of(connection: Connection, name: str) -> dict[str, Any]:
    """Return the timing of a schedule as the preview takes it."""
    schedule = connection.get(f"/schedules/{find_schedule(connection, name)}/")
    # An interval is shown in seconds and, where it was written so, as a duration: one of the two is enough.
    doubled = {"interval_seconds"} if schedule.get("every") else set()
    spec = {field: schedule[field] for field in SPEC_FIELDS if schedule.get(field) and field not in doubled}
    return {**spec, "id": schedule["id"]}


def upcoming(
    name: Annotated[str, Parameter(completer=names.schedules, help="A schedule; without it, all of them.")] = "",
    /,
    *,
    since: Since = "",
    until: Until = "",
    options: List = LIST,
) -> None:
    """List the runs to come, of one schedule or of all of them."""
    with options.connect() as connection:
        path = f"/schedules/{find_schedule(connection, name)}/upcoming/" if name else "/upcoming/"
        params = {"from": since, "to": until, "limit": min(options.limit or MOST_COMING, MOST_COMING)}

        def fetch() -> Iterable[Page]:
            answer = newer(lambda: connection.get(path, params), "the list of runs to come")
            return [Page(answer["items"], {key: value for key, value in answer.items() if key != "items"})]

        show_list(fetch, options, COMING)


def newer(call: Any, what: str) -> Any:
    """Return the result of a call that an older server does not have; there, say so."""
    try:
        return call()
    except ApiError as error:
        if error.status == METHOD_NOT_ALLOWED or error.message.startswith(NO_ROUTE):
            raise ClientError(
                f"The server does not have {what} yet.", Exit.FAILED, hint="Upgrade the server."
            ) from None
        raise


def slots(
    name: Name,
    /,
    *,
    since: Since = "",
    until: Until = "",
    ahead: Annotated[int, Parameter(help="The number of slots to come.")] = 10,
    options: List = LIST,
) -> None:
    """List the slots of a schedule, newest first: what became of each."""
    with options.connect() as connection:
        path = f"/schedules/{find_schedule(connection, name)}/slots/"
        params = {"from": since, "to": until, "ahead": ahead}
        show_list(lambda: connection.pages(path, params, options.limit), options, SLOT)


def history(name: Name, /, *, options: List = LIST) -> None:
    """List the changes of a schedule, newest first: who, when and what."""
    with options.connect() as connection:
        path = f"/schedules/{find_schedule(connection, name)}/history/"
        show_list(lambda: connection.pages(path, {}, options.limit), options, CHANGE)


_FILTER_NAMES = {
    *("status", "status_reason", "workflow_id", "owner_kind", "owner_id", "team_id", "q", "health", "namespace"),
    *("kind", "label", "ids", "target_host"),
}
_NUMBERS = {"workflow_id", "team_id"}
_NEXT_FILTER = re.compile(r",(?=(?:" + "|".join(sorted(_FILTER_NAMES)) + r")=)")


def parse_filter(text: str) -> dict[str, Any]:
    """Return the filter of a bulk verb: `status=paused,label=team=shop,q=invoice`."""
    result: dict[str, Any] = {}
    for part in _NEXT_FILTER.split(text) if text.strip() else ():
        name, equals, value = part.strip().partition("=")
        if name not in _FILTER_NAMES or not equals or not value:
            known = ", ".join(sorted(_FILTER_NAMES))
            raise ClientError(f"--filter {part.strip()}: expected name=value.", Exit.BAD_INPUT, hint=f"Names: {known}.")
        if name == "label":
            labels_of([value])
            result.setdefault("label", []).append(value)
        elif name == "ids":
            result["ids"] = value.split(",")
        else:
            result[name] = int(value) if name in _NUMBERS and value.isdigit() else value
    return result
