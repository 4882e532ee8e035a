"""``carillon lease``: bounded rights of agents, granted, changed and taken back."""

from typing import Annotated, Any, Literal

from cyclopts import Parameter

from app.cli import names
from app.cli.fields import File, Sets, assignments, moment_of, read_fields
from app.cli.lookup import find_schedule, find_workflow
from app.cli.options import PRINT, Note, Print
from app.cli.output import Shape, columns, print_item, say, write
from app.cli.resources import Ref, Resource, add_action, add_edit, add_get, add_list, find, noun

LEASE = Resource(
    path="/leases/",
    shape=Shape(
        "lease",
        columns(
            *("id", "agent", "status", "expires_at", "max_schedules", "max_runs", "review"),
            wide=("owner", "granted_by", "purpose", "max_writes", "min_interval_seconds", "workflows", "at_end"),
        ),
    ),
    name_field="agent",
    # An agent often has several leases, of which one is in force.
    preferred=("status", "active"),
    read_only=frozenset(
        {
            *("id", "agent", "status", "owner", "owner_id", "granted_by", "created_at", "revoked_at"),
            *("used", "left", "schedule_ids", "awaiting_review"),
        }
    ),
)

lease = noun("lease", "Grant agents bounded rights, and take them back.")
add_list(lease, LEASE)
add_get(lease, LEASE)
add_edit(lease, LEASE)
add_action(lease, LEASE, "approve", "Approve what an agent made.")
add_action(lease, LEASE, "revoke", "Take the rights of an agent back at once.")


@lease.command
def create(  # noqa: PLR0913 - the terms of a lease
    agent: Annotated[str, Parameter(help="The name of the agent; the file may have it.")] = "",
    /,
    *,
    expires: Annotated[
        str, Parameter(help="When it ends: a duration such as 30d, or a time such as 2030-01-31T00:00:00Z.")
    ] = "",
    purpose: Annotated[str, Parameter(help="What the agent needs it for.")] = "",
    max_schedules: Annotated[int | None, Parameter(help="The number of schedules at the same time.")] = None,
    max_runs: Annotated[int | None, Parameter(help="The number of runs of all its schedules together.")] = None,
    workflow: Annotated[
        list[str] | None,
        Parameter(
            completer=names.workflows,
            negative=(),
            help="A workflow that may be scheduled, by its id, key or name; may be repeated. By default all.",
        ),
    ] = None,
    review: Annotated[
        Literal["none", "after", "before"] | None,
        Parameter(help="Whether a person approves schedules after they run, or before."),
    ] = None,
    sets: Sets = None,
    file: File = None,
    options: Print = PRINT,
) -> None:
    """Grant a lease. The token of the agent is shown only once."""
    given: dict[str, Any] = {
        "agent": agent or None,
        "expires_at": moment_of(expires) if expires else None,
        "purpose": purpose or None,
        "max_schedules": max_schedules,
        "max_runs": max_runs,
        "review": review,
    }
    with options.connect() as connection:
        if workflow:
            given["workflows"] = [find_workflow(connection, one) for one in workflow]
        terms = {field: value for field, value in given.items() if value is not None}
        made = connection.call("POST", LEASE.path, {**read_fields(file), **terms, **assignments(sets)})
    if options.form == "table":
        say(f"Lease {made['id']} of {made['agent']} until {made['expires_at']}. Its token is shown only once:")
        # Alone on stdout, so that a script can read it.
        write(f"{made['token']}\n")
    else:
        print_item(made, options, LEASE.shape)


@lease.command
def adopt(
    name: Ref,
    /,
    *,
    schedule: Annotated[
        list[str] | None,
        Parameter(completer=names.schedules, negative=(), help="A schedule; may be repeated. By default all of them."),
    ] = None,
    note: Note = "",
    options: Print = PRINT,
) -> None:
    """Make schedules of an agent your own: they leave the lease and its bounds."""
    with options.connect() as connection:
        path = find(connection, LEASE, name)
        body: dict[str, Any] = {"note": note} if note else {}
        if schedule:
            body["schedule_ids"] = [find_schedule(connection, one) for one in schedule]
        print_item(connection.call("POST", f"{path}adopt/", body), options, LEASE.shape)
