"""``carillon run``: executions of workflows."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from app.cli import names
from app.cli.interaction import exit_by_run, wait_for_run
from app.cli.lookup import find_run, find_schedule, find_workflow
from app.cli.options import LIST, PRINT, SHOW, List, Print, Show
from app.cli.output import Shape, columns, print_item, show_item, show_list
from app.client.connection import Page
from app.client.errors import Exit

RUN = Shape(
    "run",
    columns(
        *("id", "status", "trigger", "scheduled_for", "started_at", "duration_ms", "error"),
        wide=("scheduled_job_id", "workflow_id", "finished_at", "repeat_number", "retry_attempt", "waiting_for"),
    ),
)
RunId = Annotated[str, Parameter(help="The id of the run.")]
RunStatus = Literal["pending", "running", "success", "skipped", "blocked", "failed", "timed_out", "cancelled", "lost"]


def list_runs(
    *,
    schedule: Annotated[str, Parameter(completer=names.schedules, help="Only runs of this schedule.")] = "",
    workflow: Annotated[str, Parameter(completer=names.workflows, help="Only runs of this workflow.")] = "",
    status: Annotated[RunStatus | None, Parameter(help="Only runs with this status.")] = None,
    active: Annotated[bool, Parameter(negative="", help="Only runs that have not ended.")] = False,
    options: List = LIST,
) -> None:
    """List runs, newest first."""
    with options.connect() as connection:
        params: dict[str, Any] = {
            "scheduled_job_id": find_schedule(connection, schedule) if schedule else None,
            "workflow_id": find_workflow(connection, workflow) if workflow else None,
            "status": status,
            "active": active or None,
        }

        def fetch() -> Iterable[Page]:
            return connection.pages("/executions/", params, options.limit)

        show_list(fetch, options, RUN)


def get(run: RunId, /, *, options: Show = SHOW) -> None:
    """Show one run with the result of each node."""
    with options.connect() as connection:
        show_item(lambda: connection.get(f"/executions/{find_run(run)}/"), options, RUN)


def watch(
    run: RunId,
    /,
    *,
    timeout: Annotated[float | None, Parameter(help="The exit code is 7 after so many seconds.")] = None,
    options: Print = PRINT,
) -> int:
    """Wait for the end of a run. The exit code is 6 if it failed."""
    with options.connect() as connection:
        ended = wait_for_run(connection, find_run(run), timeout)
    print_item(ended, options, RUN)
    return exit_by_run(ended)


def cancel(run: RunId, /, *, options: Print = PRINT) -> None:
    """Cancel a run."""
    with options.connect() as connection:
        answer = connection.call("POST", f"/executions/{find_run(run)}/cancel/")
    print_item(answer, options, RUN)


def again(
    run: RunId,
    /,
    *,
    wait: Annotated[bool, Parameter(negative="", help="Wait for the end; the exit code is 6 if it failed.")] = False,
    timeout: Annotated[float | None, Parameter(help="With --wait: the exit code is 7 after so many seconds.")] = None,
    options: Print = PRINT,
) -> int:
    """Run it again with the same payload."""
    from app.cli.schedules import newer

    with options.connect() as connection:
        connection.get(f"/executions/{find_run(run)}/")
        made = newer(lambda: connection.call("POST", f"/executions/{run}/again/"), "running again")
        ended = wait_for_run(connection, made["id"], timeout) if wait else made
    print_item(ended, options, RUN)
    return exit_by_run(ended) if wait else Exit.DONE
