"""``carillon schedule``: the verbs that change something, for one schedule, several, or all that fit a filter."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from app.cli import names as known
from app.cli.fields import File, Sets, assignments, edited, keeping, labels_of, moment_of, read_fields
from app.cli.interaction import (
    OPERATION,
    confirm,
    exit_by_operation,
    exit_by_run,
    wait_for_operation,
    wait_for_run,
)
from app.cli.lookup import find_schedule, find_workflow
from app.cli.options import PRINT, Flag, Note, Print, Printing, Yes
from app.cli.output import (
    Shape,
    cell,
    columns,
    json_text,
    print_answer,
    print_item,
    print_items,
    printable,
    say,
    write,
)
from app.cli.plans import plan_lines
from app.cli.runs import RUN
from app.cli.schedules import NO_TIMING, SCHEDULE, Name, Since, Timing, Until, newer, parse_filter, with_timing
from app.client.connection import API, Connection, Page
from app.client.errors import ApiError, ClientError, Exit

# What the API shows of a schedule and does not take.
READ_ONLY = frozenset(
    {
        *("id", "user_profile_id", "owner_kind", "owner_id", "team_id", "status", "status_reason", "current_repeat"),
        *("current_retry", "run_count", "error_count", "last_run_at", "next_run_at", "last_error", "next_slot"),
        *("last_fired_at", "last_success_at", "last_success_execution_id", "dead_at", "created_at", "updated_at"),
        *("health", "last_attempt_at", "last_outcome", "last_execution_id", "last_error_at", "paused_until"),
        *("lease_id", "namespace", "workflow_name", "spec_description", "target_hosts"),
    }
)
PAST_SLOT = Shape("slot", columns("slot", "outcome", "reason"), "slot")
SKIPPED_SLOT = Shape("slot", columns("slot"), "slot")

Names = Annotated[
    str, Parameter(completer=known.schedules, help="Schedules, each by its id, the beginning of the id, key or name.")
]
Filter = Annotated[
    str | None,
    Parameter(help="All schedules that fit, such as 'status=paused,label=team=shop,q=invoice'. It asks first."),
]
NoWait = Annotated[bool, Parameter(name="--no-wait", negative="", help="Do not wait for the end of the operation.")]


def create(  # noqa: PLR0913 - the fields that most schedules have
    name: Annotated[str, Parameter(help="The name; the file may have it.")] = "",
    /,
    *,
    workflow: Annotated[
        str, Parameter(completer=known.workflows, help="The id, the key or the name of the workflow.")
    ] = "",
    timing: Annotated[Timing, Parameter(name="*")] = NO_TIMING,
    key: Annotated[str, Parameter(help="A key; if a schedule has it, that one is changed instead.")] = "",
    label: Annotated[
        list[str] | None, Parameter(name=("--label", "-l"), negative=(), help="A label as key=value; may be repeated.")
    ] = None,
    description: Annotated[str, Parameter(help="A description.")] = "",
    sets: Sets = None,
    file: File = None,
    options: Print = PRINT,
) -> None:
    """Create a schedule from options, from a file, or from both."""
    given: dict[str, Any] = {"name": name, "key": key, "description": description, "labels": labels_of(label)}
    body = {**read_fields(file), **{field: value for field, value in given.items() if value}, **timing.fields()}
    body |= assignments(sets)
    with options.connect() as connection:
        if workflow or isinstance(body.get("workflow"), str):
            body["workflow_id"] = find_workflow(connection, workflow or body["workflow"])
            body.pop("workflow", None)
        if not body.get("name"):
            raise ClientError("The schedule has no name.", Exit.BAD_INPUT, hint="carillon schedule create NAME ...")
        if not body.get("workflow_id"):
            raise ClientError("No workflow is given.", Exit.BAD_INPUT, hint="Give --workflow ID, key or name.")
        if key:
            from app.client.connection import path_part

            made = connection.call("PUT", f"/schedules/by-key/{path_part(key)}/", body)
        else:
            made = connection.call("POST", "/schedules/", body)
        show_changed([made], options)


def show_changed(schedules: Sequence[Any], options: Printing) -> None:
    """Print schedules after a change: one as an object, several as a list."""
    if len(schedules) == 1 and options.form not in {"table", "wide", "csv", "name"}:
        print_item(schedules[0], options, SCHEDULE)
    else:
        print_items(with_timing([Page(list(schedules), {})], options), options, SCHEDULE)


def edit(
    name: Name,
    /,
    *,
    sets: Sets = None,
    file: File = None,
    yes: Yes = False,
    options: Print = PRINT,
) -> None:
    """Change a schedule in an editor, by --set or by a file. The plan is shown first, and you are asked."""
    with options.connect() as connection:
        path = f"{API}/schedules/{find_schedule(connection, name)}/"
        answer = connection.send("GET", path)
        schedule = answer.json()
        current = {field: value for field, value in schedule.items() if field not in READ_ONLY}
        draft = None
        if sets or file:
            changes = changed_fields(schedule, {**read_fields(file), **assignments(sets)})
        else:
            heading = f"schedule {printable(schedule['name'])} ({schedule['id']})\nRemove a line to reset a field."
            changes, draft = edited(current, heading)
        if not changes:
            if draft:
                draft.unlink(missing_ok=True)
            say("Nothing is changed.")
            return
        with keeping(draft):
            plan = show_plan(connection, str(schedule["id"]), changes)
            confirm(f"Change {', '.join(changes)} of {printable(schedule['name'])}?", yes=yes)
            body = {**changes, **({"plan_id": plan["plan_id"]} if plan else {})}
            made = connection.send("PATCH", path, body, headers={"If-Match": answer.headers.get("etag", "*")}).json()
        show_changed([made], options)


def changed_fields(schedule: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that differ from those of a schedule."""
    missing = object()
    return {name: value for name, value in wanted.items() if schedule.get(name, missing) != value}


def show_plan(connection: Connection, schedule_id: str, changes: Mapping[str, Any]) -> Any:
    """Print what a change would do to the coming runs, and return the plan; None if the server makes no plans."""
    try:
        plan = connection.call("POST", f"/schedules/{schedule_id}/plan/", changes)
    except ApiError as error:
        if error.status not in {404, 405}:
            raise
        for field, value in changes.items():
            say(f"  {field}: {json_text(value, indent=-1)}")
        say("The server makes no plans yet: the effect on the coming runs is not known.")
        return None
    for line in plan_lines(plan):
        say(line)
    return plan


def plan(name: Name, /, *, sets: Sets = None, file: File = None, options: Print = PRINT) -> int:
    """Show what a change would do to the coming runs. The exit code is 8 if something would change."""
    changes = {**read_fields(file), **assignments(sets)}
    with options.connect() as connection:
        path = f"/schedules/{find_schedule(connection, name)}/plan/"
        answer = newer(lambda: connection.call("POST", path, changes), "plans")
    if options.form == "table":
        write("".join(f"{line}\n" for line in plan_lines(answer)) or "Nothing would change.\n")
    else:
        print_item(answer, options, SCHEDULE)
    return Exit.WOULD_CHANGE if answer.get("changes") else Exit.DONE


Act = Callable[[Connection, str], Any]


def on_schedules(  # noqa: PLR0913 - what all verbs have in common
    names: tuple[str, ...],
    action: str,
    act: Act,
    options: Printing,
    *,
    selection: str | None,
    yes: bool,
    is_awaited: bool = True,
    note: str = "",
    arguments: Mapping[str, Any] | None = None,
) -> int:
    """Do something to each named schedule, or to all that fit a filter after a question."""
    if bool(names) == (selection is not None):
        raise ClientError(
            "Name schedules, or give --filter." if not names else "Name schedules or give --filter, not both.",
            Exit.BAD_INPUT,
        )
    with options.connect() as connection:
        if selection is None:
            ids = [find_schedule(connection, name) for name in names]
            for_each(connection, ids, act, lambda changed: show_changed(changed, options))
            return Exit.DONE
        body = {"action": action, "filter": parse_filter(selection), "arguments": arguments or {}, "note": note}
        return run_operation(connection, body, options, yes=yes, is_awaited=is_awaited)


def for_each(connection: Connection, ids: Sequence[str], act: Act, show: Callable[[list[Any]], None]) -> list[Any]:
    """Do something to one schedule after another, and show the results; also those before an error or Ctrl-C."""
    results: list[Any] = []
    try:
        for schedule_id in ids:
            results.append(act(connection, schedule_id))  # noqa: PERF401 - what was done before an error is shown
    except (ClientError, KeyboardInterrupt):
        _show_results(results, show)
        if len(ids) > 1:
            say(f"Done for {len(results):,} of {len(ids):,} schedules.")
        raise
    _show_results(results, show)
    return results


def _show_results(results: Sequence[Any], show: Callable[[list[Any]], None]) -> None:
    shown = [result for result in results if result is not None]
    if shown:
        show(shown)


def run_operation(
    connection: Connection, body: Mapping[str, Any], options: Printing, *, yes: bool, is_awaited: bool
) -> int:
    """Say how many schedules an operation is about, ask, start it and wait for its end."""
    tried = connection.call("POST", "/schedules/bulk/", {**body, "dry_run": True})
    left = "".join(f", {one['count']:,} {one['reason']}" for one in tried["skipped"])
    say(f"{tried['count']:,} schedules fit; {tried['would_change']:,} would change{left}.")
    if not tried["would_change"]:
        return Exit.DONE
    confirm(f"{str(body['action']).capitalize()} {tried['would_change']:,} schedules?", yes=yes)
    operation = connection.call("POST", "/schedules/bulk/", {**body, "expect_count": tried["count"]})
    return finish_operation(connection, operation, options, is_awaited=is_awaited)


def finish_operation(connection: Connection, operation: Any, options: Printing, *, is_awaited: bool) -> int:
    """Wait for an operation unless the user does not want to, print it, and return the exit code."""
    if not is_awaited:
        print_item(operation, options, OPERATION)
        return Exit.DONE
    ended = wait_for_operation(connection, operation)
    if options.form != "table":
        print_item(ended, options, OPERATION)
    return exit_by_operation(ended)


def _posting(verb: str, body: Mapping[str, Any] | None = None) -> Act:
    def act(connection: Connection, schedule_id: str) -> Any:
        return connection.call("POST", f"/schedules/{schedule_id}/{verb}/", body)

    return act


def pause(
    *names: Names,
    until: Annotated[
        str, Parameter(help="When it resumes by itself: a time such as 2030-01-31T08:00:00Z, or a duration such as 2h.")
    ] = "",
    note: Note = "",
    filter: Filter = None,  # noqa: A002 - the name of the option
    yes: Yes = False,
    no_wait: NoWait = False,
    options: Print = PRINT,
) -> int:
    """Pause schedules. Nothing fires until they are resumed."""
    arguments = {"until": moment_of(until)} if until else {}
    act = _posting("pause", {**arguments, **({"note": note} if note else {})})
    code = on_schedules(
        names, "pause", act, options, selection=filter, yes=yes, is_awaited=not no_wait, note=note, arguments=arguments
    )
    if until and names:
        say(f"Paused until {cell(arguments['until'])}.")
    return code


def resume(
    *names: Names,
    note: Note = "",
    filter: Filter = None,  # noqa: A002 - the name of the option
    yes: Yes = False,
    no_wait: NoWait = False,
    options: Print = PRINT,
) -> int:
    """Resume paused schedules."""
    act = _posting("resume", {"note": note} if note else {})
    return on_schedules(names, "resume", act, options, selection=filter, yes=yes, is_awaited=not no_wait, note=note)


def revive(
    *names: Names,
    filter: Filter = None,  # noqa: A002 - the name of the option
    yes: Yes = False,
    no_wait: NoWait = False,
    options: Print = PRINT,
) -> int:
    """Make dead schedules active again, with all their retries."""
    return on_schedules(names, "revive", _posting("revive"), options, selection=filter, yes=yes, is_awaited=not no_wait)


def delete(
    *names: Names,
    filter: Filter = None,  # noqa: A002 - the name of the option
    yes: Yes = False,
    no_wait: NoWait = False,
    options: Print = PRINT,
) -> int:
    """Delete schedules and their history."""

    def act(connection: Connection, schedule_id: str) -> None:
        connection.call("DELETE", f"/schedules/{schedule_id}/")
        say(f"Deleted schedule {schedule_id}.")

    return on_schedules(names, "delete", act, options, selection=filter, yes=yes, is_awaited=not no_wait)


def run(  # noqa: PLR0913 - the verbs' common options, and those of waiting
    *names: Names,
    wait: Annotated[bool, Parameter(negative="", help="Wait for the end; the exit code is 6 if a run failed.")] = False,
    timeout: Annotated[float | None, Parameter(help="With --wait: the exit code is 7 after so many seconds.")] = None,
    if_running: Annotated[str, Parameter(help="What to do while another run is active, as in a schedule.")] = "",
    filter: Filter = None,  # noqa: A002 - the name of the option
    yes: Yes = False,
    no_wait: NoWait = False,
    options: Print = PRINT,
) -> int:
    """Run schedules now. Their cadence and counters do not change."""
    if filter is not None:
        return on_schedules(names, "run", _posting("run"), options, selection=filter, yes=yes, is_awaited=not no_wait)
    if not names:
        raise ClientError("Name schedules, or give --filter.", Exit.BAD_INPUT)
    body = {"if_running": if_running} if if_running else {}
    with options.connect() as connection:
        ids = [find_schedule(connection, name) for name in names]
        started = _posting("run", body)
        if not wait:
            for_each(connection, ids, started, lambda runs: print_runs(runs, options))
            return Exit.DONE
        runs = for_each(connection, ids, started, lambda runs: None if len(ids) == 1 else _say_started(runs))
        ended = [wait_for_run(connection, one["id"], timeout) for one in runs]
    print_runs(ended, options)
    return max(map(exit_by_run, ended))


def _say_started(runs: Sequence[Any]) -> None:
    for one in runs:
        say(f"Started run {one['id']}.")


def print_runs(runs: Sequence[Any], options: Printing) -> None:
    """Print runs: one as an object, several as a list."""
    if len(runs) == 1 and options.form not in {"table", "wide", "csv", "name"}:
        print_item(runs[0], options, RUN)
    else:
        print_items([Page(list(runs), {})], options, RUN)


def backfill(  # noqa: PLR0913 - the arguments of the API
    name: Name,
    /,
    *,
    since: Since,
    until: Until,
    only: Annotated[Literal["not_fired", "all"], Parameter(help="Which slots of the range run.")] = "not_fired",
    order: Annotated[Literal["oldest", "newest"], Parameter(help="Which slots run first.")] = "oldest",
    max_concurrent: Annotated[int | None, Parameter(help="The number of runs at the same time.")] = None,
    rate: Annotated[str, Parameter(help="The number of runs that start in a time, such as 10/m.")] = "",
    note: Note = "",
    dry_run: Annotated[bool, Parameter(negative="", help="Only say which slots would run.")] = False,
    yes: Yes = False,
    no_wait: NoWait = False,
    options: Print = PRINT,
) -> int:
    """Run the slots of a past range. It says how many there are, and asks."""
    body: dict[str, Any] = {"from": since, "to": until, "only": only, "order": order}
    body |= {"max_concurrent": max_concurrent} if max_concurrent is not None else {}
    body |= {"rate": int(rate) if rate.isdecimal() else rate} if rate else {}
    body |= {"note": note} if note else {}
    with options.connect() as connection:
        path = f"/schedules/{find_schedule(connection, name)}/backfill/"
        tried = newer(lambda: connection.call("POST", path, {**body, "dry_run": True}), "backfills")
        if dry_run:
            print_answer(tried, tried["slots"], options, PAST_SLOT)
        say(backfill_sentence(tried))
        if dry_run or not tried["count"]:
            return Exit.DONE
        confirm(f"Run {tried['count']:,} slots?", yes=yes)
        return finish_operation(connection, connection.call("POST", path, body), options, is_awaited=not no_wait)


def backfill_sentence(tried: Mapping[str, Any]) -> str:
    """Return how many slots a backfill would run, and how long that would take."""
    count, named = tried["count"], len(tried["slots"])
    if not count:
        return "No slot of this range would run."
    slots = "1 slot" if count == 1 else f"{count:,} slots"
    first = f" The first {named:,} are named." if named < count else ""
    return f"{slots} would run, in about {tried['estimate_seconds']:,.0f} s.{first}"


def skip(  # noqa: PLR0913 - the arguments of the API
    name: Name,
    /,
    *,
    next: Annotated[int | None, Parameter(help="The number of coming slots to skip.")] = None,  # noqa: A002
    slot: Annotated[list[str] | None, Parameter(negative=(), help="A slot to skip; may be repeated.")] = None,
    since: Since = "",
    until: Until = "",
    undo: Flag = False,
    note: Note = "",
    options: Print = PRINT,
) -> None:
    """Skip coming slots of a schedule, or take that back.

    Parameters
    ----------
    undo
        Let the slots fire after all.
    """
    given = {"next": next, "slots": slot, "from": since, "to": until}
    given = {field: value for field, value in given.items() if value is not None and value != ""}
    if undo:
        _let_fire(name, given, options)
        return
    if not given:
        raise ClientError("Which slots?", Exit.BAD_INPUT, hint="Give --next N, --slot TIME, or --from and --to.")
    with options.connect() as connection:
        path = f"/schedules/{find_schedule(connection, name)}/skip/"
        body = {**given, "note": note} if note else given
        answer = newer(lambda: connection.call("POST", path, body), "skipping")
    skipped = answer["skipped"]
    print_answer(answer, [{"slot": one} for one in skipped], options, SKIPPED_SLOT)
    if skipped:
        undo_command = f"carillon schedule skip {shlex.quote(printable(name))} --undo"
        say(f"{len(skipped):,} {_slots(skipped)} left out. To take that back: {undo_command}")
    else:
        say("There is no such slot, so nothing is left out.")


def _let_fire(name: str, given: Mapping[str, Any], options: Printing) -> None:
    """Take back what was left out: all of it, a range, or single slots."""
    if "next" in given:
        raise ClientError("--undo takes no --next.", Exit.BAD_INPUT, hint="Give --slot TIME, --from and --to, or none.")
    ranges: list[dict[str, Any]] = [{"from": one, "to": one} for one in given.get("slots", ())]
    if not ranges or given.keys() & {"from", "to"}:
        ranges.append({"from": given.get("from"), "to": given.get("to")})
    with options.connect() as connection:
        path = f"/schedules/{find_schedule(connection, name)}/skip/"
        for bounds in ranges:
            newer(lambda bounds=bounds: connection.call("DELETE", path, params=bounds), "skipping")
    say("The slots fire after all, as far as they are still to come.")


def _slots(slots: Sequence[Any]) -> str:
    return "slot is" if len(slots) == 1 else "slots are"
