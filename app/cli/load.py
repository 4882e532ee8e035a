"""``carillon load``: how many runs there were and will be, minute by minute, and how to spread them."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from app.cli.interaction import confirm
from app.cli.options import PRINT, Print, Yes
from app.cli.output import Shape, columns, is_coloured, json_text, print_item, say, write
from app.cli.schedules import Since, Until, newer, parse_filter
from app.client.errors import ClientError, Exit

MOST_CELLS = 72
MINUTE_SECONDS = 60
BUCKET = Shape("bucket", columns("at", "fires", "busy_seconds"), "at")
# Colours of the 256 of terminals, from cold to hot, and characters where there are no colours.
HEAT = (236, 22, 28, 34, 40, 148, 184, 220, 214, 208, 202, 196)
SHADES = " .:-=+*#%@"
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
    if options.form not in {"table", "wide"}:
        print_item({"outcomes": outcomes, "lateness": lateness}, options, BUCKET)
        return
    items = outcomes["items"]
    fired = [sum(count for name, count in item["outcomes"].items() if name in {"fired", "queued"}) for item in items]
    missed = [sum(item["outcomes"].values()) - number for item, number in zip(items, fired, strict=True)]
    late = [item["p99_ms"] or 0 for item in lateness["items"]]
    if not items:
        say("There are no figures for this time.")
        return
    write(f"{items[0]['at']} to {items[-1]['at']}, {outcomes['step']} s each\n")
    write(f"fired      {heat(fired)}  at most {max(fired):,}, together {sum(fired):,}\n")
    write(f"not fired  {heat(missed)}  at most {max(missed):,}, together {sum(missed):,}\n")
    if late:
        write(f"lateness   {heat(late)}  p99 at most {max(late):,.0f} ms\n")


def forecast(
    *,
    since: Since = "",
    until: Until = "",
    bucket: Annotated[int | None, Parameter(help="The seconds of a step.")] = None,
    by: Annotated[By | None, Parameter(help="What to group by.")] = None,
    options: Print = PRINT,
) -> None:
    """Show how many runs are to come, with the peak and the quiet times."""
    body = {"from": since or None, "to": until or None, "bucket_seconds": bucket, "by": by}
    with options.connect() as connection:
        given = {name: value for name, value in body.items() if value is not None}
        answer = newer(lambda: connection.call("POST", "/forecast/", given), "forecasts")
    if options.form not in {"table", "wide"}:
        print_item(answer, options, BUCKET)
        return
    buckets = answer["buckets"]
    if buckets:
        fires = [one["fires"] for one in buckets]
        write(f"{buckets[0]['at']} to {buckets[-1]['at']}, {len(buckets)} steps, together {sum(fires):,} runs\n")
        write(f"{heat(fires)}\n")
    peak = answer.get("peak")
    if peak:
        write(f"peak   {peak['at']}  {peak['fires']:,} runs\n")
    for span in (answer.get("quiet") or [])[:3]:
        write(f"quiet  {span['from']} to {span['to']}\n")


def spread(
    *,
    max_shift: Annotated[int, Parameter(name="--max-shift", help="The seconds by which a slot may move.")] = 300,
    filter: Annotated[str, Parameter(help="Which schedules, as in the bulk verbs.")] = "",  # noqa: A002
    by_jitter: Annotated[bool, Parameter(negative="", help="Spread by jitter instead of other times.")] = False,
    apply: Annotated[bool, Parameter(negative="", help="Change the schedules. It asks first.")] = False,
    yes: Yes = False,
    options: Print = PRINT,
) -> int:
    """Propose changes that spread the runs, with the peak before and after. The exit code is 8 if there are any."""
    body: dict[str, Any] = {"max_shift_seconds": max_shift, "filter": parse_filter(filter), "by_jitter": by_jitter}
    with options.connect() as connection:
        answer = newer(lambda: connection.call("POST", "/forecast/spread/", body), "proposals to spread the load")
        changes = answer["changes"]
        if options.form not in {"table", "wide"}:
            print_item(answer, options, BUCKET)
        else:
            write("".join(f"{line}\n" for line in spread_lines(answer)))
        if not apply or not changes:
            return Exit.WOULD_CHANGE if changes else Exit.DONE
        confirm(f"Change {len(changes):,} schedules?", yes=yes)
        for done, change in enumerate(changes):
            try:
                connection.call("PATCH", f"/schedules/{change['id']}/", change["set"])
            except (ClientError, KeyboardInterrupt):
                say(f"{done:,} of {len(changes):,} schedules were changed.")
                raise
    say(f"{len(changes):,} schedules were changed.")
    return Exit.DONE


def spread_lines(answer: Mapping[str, Any]) -> list[str]:
    """Return a proposal as lines: the peaks, and what changes for each schedule."""
    before, after = ((answer.get(name) or {}) for name in ("before", "after"))
    peaks = (
        f"peak {before.get('fires', 0):,} runs at {before.get('at')} -> {after.get('fires', 0):,} at {after.get('at')}"
    )
    return [peaks, *(f"  {one['id']}  {json_text(one.get('set'), indent=-1)}" for one in answer["changes"])]


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
