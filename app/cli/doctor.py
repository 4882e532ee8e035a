"""``carillon doctor``: whether the server can be reached and is well, step by step."""

import os
import sys
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import msgspec

from app import clock
from app.cli.options import PRINT, Print, Printing
from app.cli.output import Shape, colour, columns, print_items, printable, write
from app.client.connection import API, Answer, Connection, Page
from app.client.contexts import config_path, find_target, is_readable_by_others
from app.client.errors import ClientError, Exit

MOST_SKEW_SECONDS = 5.0
OK = 200
BROKEN = 500
CHECK = Shape("check", columns("check", "state", "detail", "hint"), "check")
# A warning does not change the exit code.
State = Literal["ok", "warning", "failed"]


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at, and what to do about it."""

    check: str
    state: State
    detail: str
    hint: str = ""


def doctor(*, options: Print = PRINT) -> int:
    """Check the server: reachability, login, clock, versions, Postgres, Redis, migrations. Exit code 1 if one fails."""
    checks = []
    for check in examine(options):
        checks.append(check)
        if options.form == "table":
            mark = colour(f"{check.state:<8}", "late" if check.state == "warning" else check.state, sys.stdout)
            write(f"{mark}{check.check}: {printable(check.detail)}\n")
            if check.hint:
                write(f"        {check.hint}\n")
    if options.form != "table":
        print_items([Page([msgspec.to_builtins(check) for check in checks], {})], options, CHECK)
    return Exit.FAILED if any(check.state == "failed" for check in checks) else Exit.DONE


def examine(options: Printing) -> Iterator[Check]:
    """Yield the checks one after another; what cannot be reached ends them."""
    try:
        target = find_target(options.asked, os.environ)
    except ClientError as error:
        yield Check("server", "failed", error.message, error.hint)
        return
    yield Check("server", "ok", f"{target.url} (from {target.source})")
    if is_readable_by_others(os.environ):
        path = config_path(os.environ)
        yield Check("contexts", "warning", f"{path} can be read by other users", f"chmod 600 {path}")
    with Connection(target) as connection:
        before = clock.now()
        try:
            alive = connection.raw("GET", "/health/live")
        except ClientError as error:
            yield Check("reachable", "failed", error.message, "Check the address, the network and the server's log.")
            return
        took = (clock.now() - before).total_seconds()
        yield (reachable := _reachable(alive, took))
        if reachable.state == "failed":
            return
        yield clock_check(alive, took)
        yield from _login(connection)
        yield from store_checks(connection.raw("GET", "/health/ready"))
        yield _versions(connection)
        yield from _work(connection)


def _reachable(answer: Answer, seconds: float) -> Check:
    if answer.status != OK or b'"status"' not in answer.body:
        detail = f"/health/live answers {answer.status}, and not as Carillon does"
        return Check("reachable", "failed", detail, "Is a proxy in between, or another server there?")
    return Check("reachable", "ok", f"answers in {seconds * 1000:.0f} ms")


def clock_check(answer: Answer, seconds: float) -> Check:
    """Compare the clock of the server with that of this machine, to the second that HTTP has."""
    try:
        there = parsedate_to_datetime(answer.headers.get("date", ""))
    except ValueError:
        return Check("clock", "warning", "the server does not say its time")
    skew = (there - clock.now()).total_seconds()
    if abs(skew) > MOST_SKEW_SECONDS + seconds:
        detail = f"the server's clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this machine's"
        return Check("clock", "warning", detail, "Synchronise both clocks by NTP: schedules run by the database's.")
    return Check("clock", "ok", "the server's and this machine's agree")


def _login(connection: Connection) -> Iterator[Check]:
    try:
        user = connection.get("/me/")
    except ClientError as error:
        yield Check("login", "failed", error.message, error.hint)
        return
    scopes = ", ".join(user.get("scopes") or ())
    yield Check("login", "ok", f"{user['username']} ({user['role']}{'; ' + scopes if scopes else ''})")


def store_checks(answer: Answer) -> Iterator[Check]:
    """Yield what the server says of Postgres and Redis."""
    try:
        state: Any = answer.json()
    except ClientError as error:
        yield Check("ready", "failed", error.message)
        return
    hints = {
        "postgres": "The server cannot serve requests: look at its log and at CARILLON_DATABASE_URL.",
        "redis": "Schedules run all the same, up to CARILLON_RECONCILE_SECONDS later.",
    }
    for name, hint in hints.items():
        value = str(state.get(name))
        if name == "redis" and value == "ok" and "Redis: " in str(state.get("detail", "")):
            detail = str(state["detail"]).partition("Redis: ")[2]
            yield Check(name, "warning", detail, "Evicted messages are found in Postgres, so that runs start late.")
            continue
        severity: State = "ok" if value == "ok" else "warning" if name == "redis" else "failed"
        detail = value if value == "ok" else f"{value} {state.get('detail', '')}".strip()
        yield Check(name, severity, detail, "" if value == "ok" else hint)


def _versions(connection: Connection) -> Check:
    """Compare the version of the server, as its OpenAPI document has it, with that of this command."""
    from importlib.metadata import version

    own = version("carillon")
    answer = connection.raw("GET", "/schema/openapi.json")
    try:
        theirs = str(answer.json()["info"]["version"])
    except (ClientError, KeyError, TypeError):
        return Check("versions", "warning", f"this command is {own}; the server does not say its version")
    if theirs == own:
        return Check("versions", "ok", f"both are {own}")
    return Check("versions", "warning", f"this command is {own}, the server {theirs}", "Use the same version on both.")


def _work(connection: Connection) -> Iterator[Check]:
    """Yield whether the schema fits the server, and whether workers are there and keep up."""
    answer = connection.raw("GET", f"{API}/overview/")
    if answer.status >= BROKEN:
        yield Check(
            "migrations", "failed", f"the server answers {answer.status}", "Run `carillon migrate` on the server."
        )
    if answer.status != OK:
        return
    yield Check("migrations", "ok", "the schema of the database fits the server")
    overview = answer.json()
    workers, overdue = overview["workers"], overview["oldest_overdue_seconds"]
    if not workers:
        yield Check("workers", "failed", "no worker runs, so nothing fires", "Start one with `carillon worker`.")
    else:
        yield Check("workers", "ok", f"{workers} running")
    if not overview["schedules_enabled"]:
        yield Check("schedules", "warning", "all schedules are switched off", "CARILLON_SCHEDULES_ENABLED is false.")
    if overdue > MOST_SKEW_SECONDS:
        yield Check("lateness", "warning", f"the oldest due slot is {overdue:.0f} s late", "`carillon top` shows more.")
