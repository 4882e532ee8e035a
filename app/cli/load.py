"""``carillon load``: how many runs there were and will be, minute by minute, and how to spread them."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter

from app.cli.interaction import Progress, confirm
from app.cli.options import PRINT, Print, Yes
from app.cli.output import Shape, cell, cell_width, columns, fitted_text, is_coloured, print_answer, say, write
from app.cli.schedules import Since, Until, newer, parse_filter
from app.client.connection import Connection
from app.client.errors import ClientError, Exit
from app.domain.capacity import Needs, Work, needs_of

MOST_CELLS = 72
TABLES = {"table", "wide"}
MOST_QUIET = 3
MOST_GROUPS = 10
LONGEST_NAME = 30
BUCKET = Shape("bucket", columns("at", "fires", "busy_seconds"), "at")
STEP = Shape("step", columns("at", "fired", "not_fired", "p50_ms", "p99_ms"), "at")
CHANGE = Shape("schedule", columns("id", "name", "set:change"))
# Colours of the 256 of terminals, from cold to hot, and characters where there are no colours.
HEAT = (236, 22, 28, 34, 40, 148, 184, 220, 214, 208, 202, 196)
SHADES = " .:-=+*#%@"
NEEDS = Shape("needs", columns("fires_per_second", "worker_cores", "workers", "postgres_cores", "wal_bytes_per_second"))
# The length of the buckets in which the peak is looked for.
PEAK_SECONDS = 60
MEGABYTE, GIGABYTE = 1e6, 1e9
By = Literal["schedule", "workflow", "owner", "host"]


def show(
    *,
    since: Since = "",
    until: Until = "",
    step: Annotated[int, Parameter(help="The seconds of a step.")] = 60,
    options: Print = PRINT,
) -> None:
    """Show how many slots fired and how late, by steps of time."""
    params = {"from": since, "to": until, "step": step}
    with options.connect() as connection:
        outcomes = connection.get("/stats/outcomes/", params)
        lateness = connection.get("/stats/lateness/", params)
    rows = load_rows(outcomes["items"], lateness["items"])
    if options.form not in TABLES:
        print_answer({"outcomes": outcomes, "lateness": lateness}, rows, options, STEP)
        return
    if not rows:
        say("There are no figures for this time.")
        return
    fired, missed, late = ([row[name] or 0 for row in rows] for name in ("fired", "not_fired", "p99_ms"))
    write(f"{cell(rows[0]['at'])} to {cell(rows[-1]['at'])}, {outcomes['step']} s each\n")
    write(f"fired      {heat(fired)}  at most {max(fired):,}, together {sum(fired):,}\n")
    write(f"not fired  {heat(missed)}  at most {max(missed):,}, together {sum(missed):,}\n")
    if any(row["p99_ms"] is not None for row in rows):
        write(f"lateness   {heat(late)}  p99 at most {max(late):,.0f} ms\n")


def load_rows(outcomes: Sequence[Any], lateness: Sequence[Any]) -> list[dict[str, Any]]:
    """Return one row for each step: how many slots fired and did not, and how late those were that did."""
    late = {item["at"]: item for item in lateness}
    rows = []
    for item in outcomes:
        fired = sum(item["outcomes"].get(name, 0) for name in ("fired", "queued"))
        missed = sum(item["outcomes"].values()) - fired
        delays = {name: late.get(item["at"], {}).get(name) for name in ("p50_ms", "p99_ms")}
        rows.append({"at": item["at"], "fired": fired, "not_fired": missed, **delays})
    return rows


def forecast(
    *,
    since: Since = "",
    until: Until = "",
    bucket: Annotated[int | None, Parameter(help="The seconds of a step.")] = None,
    by: Annotated[By | None, Parameter(help="What to group by.")] = None,
    filter: Annotated[str, Parameter(help="Which schedules, as in the bulk verbs.")] = "",  # noqa: A002
    options: Print = PRINT,
) -> None:
    """Show how many runs are to come, with the peak and the quiet times."""
    body: dict[str, Any] = {"from": since or None, "to": until or None, "bucket_seconds": bucket, "by": by}
    body["filter"] = parse_filter(filter) if filter else None
    with options.connect() as connection:
        given = {name: value for name, value in body.items() if value is not None}
        answer = newer(lambda: connection.call("POST", "/forecast/", given), "forecasts")
    if options.form not in TABLES:
        print_answer(answer, answer["buckets"], options, BUCKET)
        return
    write("".join(f"{line}\n" for line in forecast_lines(answer)))


def forecast_lines(answer: Mapping[str, Any]) -> list[str]:
    """Return a forecast as lines: the curve, the peak, quiet times, and the largest groups."""
    buckets = answer["buckets"]
    fires = [one["fires"] for one in buckets]
    if not sum(fires):
        return ["Nothing runs in this time."]
    about = "about " if answer["is_estimate"] else ""
    lines = [
        f"{cell(buckets[0]['at'])} to {cell(buckets[-1]['at'])}, {len(buckets):,} steps, {about}{_runs(sum(fires))}",
        heat(fires),
        f"peak   {cell(answer['peak']['at'])}  {_runs(answer['peak']['fires'])}",
        *(f"quiet  {cell(span['from'])} to {cell(span['to'])}" for span in answer["quiet"][:MOST_QUIET]),
    ]
    groups = answer["groups"][:MOST_GROUPS]
    names = [fitted_text(cell(one["name"] or one["key"]), LONGEST_NAME) for one in groups]
    width = max(map(cell_width, names), default=0)
    for name, group in zip(names, groups, strict=True):
        padding = " " * (width - cell_width(name))
        lines.append(f"{name}{padding}  {heat(group['buckets'])}  {_runs(group['fires'])}")
    if len(answer["groups"]) > MOST_GROUPS:
        lines.append(f"and {len(answer['groups']) - MOST_GROUPS:,} more; -o json shows all")
    return lines


def capacity(
    *,
    rate: Annotated[float, Parameter(help="Fires a second; without it, the peak of the next 24 hours.")] = 0.0,
    work: Annotated[Literal["noop", "http"], Parameter(help="What the runs do.")] = "http",
    options: Print = PRINT,
) -> None:
    """Show what a rate of fires needs: cores of workers and of Postgres, WAL, and disk for the history."""
    if rate < 0:
        raise ClientError("--rate is a number of fires a second, 0 or more.", Exit.BAD_INPUT)
    needs = needs_of(rate or _peak_rate(options), Work(work))
    row = msgspec.to_builtins(needs)
    if options.form not in TABLES:
        print_answer(row, [row], options, NEEDS)
        return
    write("".join(f"{line}\n" for line in capacity_lines(needs)))


def _peak_rate(options: Print) -> float:
    """Return the highest rate of coming fires that the server forecasts, in fires a second."""
    with options.connect() as connection:
        answer = newer(lambda: connection.call("POST", "/forecast/", {"bucket_seconds": PEAK_SECONDS}), "forecasts")
    return float(answer["peak"]["fires"]) / PEAK_SECONDS if answer["peak"] else 0.0


def capacity_lines(needs: Needs) -> list[str]:
    """Return what a rate needs as lines."""
    processes = "1 process" if needs.workers == 1 else f"{needs.workers} processes"
    return [
        f"fires     {needs.fires_per_second:,.1f}/s",
        f"workers   {needs.worker_cores:.2f} cores, {processes}",
        f"Postgres  {needs.postgres_cores:.2f} cores, {needs.wal_bytes_per_second / MEGABYTE:,.2f} MB/s of WAL",
        f"history   {needs.history_bytes_per_day / GIGABYTE:,.2f} GB for each day that is kept",
        "Measured on one machine of two cores: docs/scaling.md says how far it holds.",
    ]


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count:,} runs"


def spread(
    *,
    max_shift: Annotated[int, Parameter(name="--max-shift", help="The seconds by which a slot may move.")] = 300,
    filter: Annotated[str, Parameter(help="Which schedules, as in the bulk verbs.")] = "",  # noqa: A002
    by_jitter: Annotated[bool, Parameter(negative="", help="Spread by jitter instead of other times.")] = False,
    apply: Annotated[bool, Parameter(negative="", help="Change the schedules. It asks first.")] = False,
    yes: Yes = False,
    options: Print = PRINT,
) -> int:
    """Propose changes that spread the runs, with the peak before and after."""
    body: dict[str, Any] = {"max_shift_seconds": max_shift, "filter": parse_filter(filter), "by_jitter": by_jitter}
    with options.connect() as connection:
        answer = newer(lambda: connection.call("POST", "/forecast/spread/", body), "proposals to spread the load")
        changes = answer["changes"]
        print_answer(answer, changes, options, CHANGE)
        say(spread_sentence(answer))
        if not apply or not changes:
            return Exit.DONE
        confirm(f"Change {len(changes):,} schedules?", yes=yes)
        _change_all(connection, changes)
    return Exit.DONE


def spread_sentence(answer: Mapping[str, Any]) -> str:
    """Return the peak of the next day before and after a proposal."""
    before, after = answer["before"], answer["after"]
    peak = f"The peak of the next day is {_runs(before['fires'])}, at {cell(before['at'])}"
    if not answer["changes"]:
        return f"{peak}. No change within the bounds makes it smaller."
    return f"{peak}; with {_changes(len(answer['changes']))} it is {after['fires']:,}, at {cell(after['at'])}."


def _changes(count: int) -> str:
    return "this change" if count == 1 else f"these {count:,} changes"


def _change_all(connection: Connection, changes: Sequence[Any]) -> None:
    """Change one schedule after another; say how many were changed, also before an error or Ctrl-C."""
    progress, done = Progress("spread"), 0
    try:
        for change in changes:
            progress.show(done, len(changes))
            connection.call("PATCH", f"/schedules/{change['id']}/", change["set"])
            done += 1
    finally:
        progress.end()
        say(f"{done:,} of {len(changes):,} schedules were changed.")


def heat(values: Sequence[float]) -> str:
    """Return numbers as one line: as colours by half blocks on a terminal, else by characters."""
    room = min(MOST_CELLS, max(10, shutil.get_terminal_size().columns - 45))
    if is_coloured(sys.stdout):
        cells = _fitted(values, room * 2)
        highest = max(cells, default=0) or 1
        shades = [HEAT[round(value / highest * (len(HEAT) - 1))] for value in cells]
        shades += shades[-1:] * (len(shades) % 2)
        pairs = zip(shades[::2], shades[1::2], strict=True)
        return "".join(f"\x1b[38;5;{left};48;5;{right}m▌" for left, right in pairs) + "\x1b[0m"
    cells = _fitted(values, room)
    highest = max(cells, default=0) or 1
    return "|" + "".join(SHADES[round(value / highest * (len(SHADES) - 1))] for value in cells) + "|"


def _fitted(values: Sequence[float], most: int) -> list[float]:
    """Return at most so many values: neighbours are taken together, and the highest of them counts."""
    size = -(-len(values) // most) or 1
    return [max(values[index : index + size]) for index in range(0, len(values), size)]
