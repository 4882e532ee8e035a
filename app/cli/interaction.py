"""Questions, progress on a terminal, and waiting for runs and operations."""

import select
import sys
import time
from collections.abc import Callable
from typing import Any

from app import clock
from app.cli.output import Shape, columns, printable, say
from app.client.connection import Connection
from app.client.errors import ClientError, Exit

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 1.0
ANSWER_SECONDS = 0.5
BAR_CELLS = 30
OPERATION = Shape(
    "operation",
    columns(
        "id", "action", "status", "done", "skipped", "failed", "total", "created_at", wide=("by", "note", "undoable")
    ),
)
ACTIVE = {"pending", "running"}
# An operation in one of these does not end by itself.
UNFINISHED = {"running", "pending", "paused"}
# What `done` counts, where that is not a change of a schedule.
DONE_VERBS = {"run": "started", "backfill": "ran"}


def confirm(question: str, *, yes: bool) -> None:
    """Ask a question, unless the user has agreed already; a refusal or a missing answer ends the command."""
    if yes:
        return
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
    try:
        answer = sys.stdin.readline() if is_terminal or _is_answered() else ""
    except KeyboardInterrupt:
        say("\nNothing was changed.")
        raise
    if not answer and not is_terminal:
        raise ClientError(f"{question} Nothing was changed.", Exit.BAD_INPUT, hint="Repeat the command with --yes.")
    if answer.strip().lower() not in {"y", "yes"}:
        raise ClientError("Nothing was changed.", Exit.FAILED)


def _is_answered() -> bool:
    """Return whether a pipe or a file holds an answer, such as that of `yes |`.

    A pipe that stays open without one, as of a service, must not be waited for.
    """
    try:
        return bool(select.select([sys.stdin], [], [], ANSWER_SECONDS)[0])
    except (OSError, ValueError):
        return False


class Progress:
    """One line on stderr that is written over; nothing where stderr is not a terminal."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._is_shown = sys.stderr.isatty()

    def show(self, done: int, total: int) -> None:
        """Show how much of the whole is done."""
        share = min(done / total, 1.0) if total else 1.0
        bar = "#" * round(share * BAR_CELLS)
        self._write(f"{self._label} [{bar:<{BAR_CELLS}}] {done:,}/{total:,}")

    def note(self, text: str) -> None:
        """Show a text instead of a bar."""
        self._write(f"{self._label} {text}")

    def _write(self, text: str) -> None:
        if self._is_shown:
            # The cursor stands at the beginning, so that a line of a log begins there.
            sys.stderr.write(f"\r\x1b[K{text}\r")
            sys.stderr.flush()

    def end(self) -> None:
        """Remove the line."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def poll(read: Callable[[], Any], is_over: Callable[[Any], bool], seconds: float | None = None) -> Any:
    """Read again and again, ever more slowly, until it is over; after this many seconds raise TimeoutError."""
    begun, pause = clock.monotonic(), FIRST_PAUSE_SECONDS
    while True:
        value = read()
        if is_over(value):
            return value
        left = LONGEST_PAUSE_SECONDS if seconds is None else begun + seconds - clock.monotonic()
        if left <= 0:
            raise TimeoutError
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)


def wait_for_run(connection: Connection, run_id: str, seconds: float | None) -> Any:
    """Return a run once it has ended."""
    progress, begun = Progress(f"run {run_id}"), clock.monotonic()

    def read() -> Any:
        run = connection.get(f"/executions/{run_id}/")
        progress.note(f"{run['status']} {clock.monotonic() - begun:.0f} s")
        return run

    try:
        return poll(read, lambda run: run["status"] not in ACTIVE, seconds)
    except TimeoutError:
        raise ClientError(
            f"The run has not ended after {seconds:g} s.",
            Exit.TIMED_OUT,
            hint=f"It goes on: carillon run watch {run_id}",
        ) from None
    except KeyboardInterrupt:
        say(f"\nThe run goes on. To follow it: carillon run watch {run_id}")
        raise
    except ClientError as error:
        raise _while_waiting(error, f"The run may go on: carillon run watch {run_id}") from None
    finally:
        progress.end()


def _while_waiting(error: ClientError, hint: str) -> ClientError:
    """Return an error of waiting with what became of the thing that was waited for."""
    return ClientError(error.message, error.code, lines=error.lines, hint=hint)


def exit_by_run(run: Any) -> int:
    """Return the exit code for a run that has ended, and print why it failed."""
    if run["status"] == "success":
        return Exit.DONE
    reason = printable(run.get("error") or "")
    say(f"The run ended as {run['status']}{': ' + reason if reason else ''}")
    return Exit.RUN_FAILED


def wait_for_operation(connection: Connection, operation: Any) -> Any:
    """Return an operation once it has ended, with a progress bar meanwhile."""
    progress, operation_id = Progress(str(operation["action"])), operation["id"]

    def read() -> Any:
        current = connection.get(f"/operations/{operation_id}/")
        if current["status"] == "paused":
            progress.note(f"is paused. To go on: carillon operation resume {operation_id}")
        else:
            progress.show(current["done"] + current["skipped"] + current["failed"], current["total"])
        return current

    try:
        return poll(read, lambda current: current["status"] not in UNFINISHED)
    except KeyboardInterrupt:
        say(f"\nThe operation goes on. To stop it: carillon operation cancel {operation_id}")
        raise
    except ClientError as error:
        raise _while_waiting(error, f"The operation goes on: carillon operation get {operation_id}") from None
    finally:
        progress.end()


def exit_by_operation(operation: Any) -> int:
    """Print what an operation did, and return the exit code."""
    verb = DONE_VERBS.get(operation["action"], "changed")
    counts = f"{operation['done']:,} {verb}, {operation['skipped']:,} left alone, {operation['failed']:,} failed"
    state = "" if operation["status"] == "done" else f" It is {operation['status']}."
    say(f"{operation['action']}: {counts} of {operation['total']:,}.{state}")
    if operation.get("error"):
        say(f"  {printable(operation['error'])}")
    for row in operation["errors"]:
        say(f"  {row.get('schedule_id', '')}: {printable(str(row.get('message', '')))}")
    if operation.get("undoable"):
        say(f"To undo it: carillon operation undo {operation['id']}")
    return Exit.DONE if operation["status"] == "done" and not operation["failed"] else Exit.FAILED
