"""How objects and lists are printed: tables, JSON, YAML, CSV and names. Data goes to stdout, words to stderr."""

import os
import re
import shutil
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from app.cli.options import Printing, Showing, Zone
from app.client.connection import Page, say

WATCH_SECONDS = 2.0
NARROWEST_COLUMN = 12
# Eight characters and a mark.
SHORTENED_ID = 9
GAP = "  "
NOTHING = "-"
CLEAR_SCREEN = "\x1b[H\x1b[2J"
RESET = "\x1b[0m"
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_SHOWN_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)")
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# A status, an outcome, or nothing.
_WORD = re.compile(r"[a-z_]{1,20}|-")
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029]")
_RED, _GREEN, _YELLOW, _CYAN, _DIM = "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[36m", "\x1b[2m"
_STYLES = {
    **dict.fromkeys(("failed", "dead", "failing", "silent", "lost", "timed_out", "invalid", "open", "expired"), _RED),
    **dict.fromkeys(("active", "healthy", "success", "fired", "closed", "ok"), _GREEN),
    **dict.fromkeys(("paused", "late", "cancelled", "half_open", "blocked"), _YELLOW),
    **dict.fromkeys(("running", "pending", "queued", "expected"), _CYAN),
    **dict.fromkeys(("done", "never_ran", "skipped"), _DIM),
}

__all__ = ["Column", "Shape", "colour", "is_coloured", "print_item", "print_items", "printable", "say", "show_list"]


class Column(msgspec.Struct, frozen=True):
    """A column of a table: its title, the field, and whether only wide tables have it."""

    title: str
    path: str
    is_wide: bool = False


class Shape(msgspec.Struct, frozen=True):
    """How objects of a kind are shown: the noun of `-o name`, the field with the id, and the columns."""

    noun: str
    columns: tuple[Column, ...]
    id_path: str = "id"


def columns(*paths: str, wide: Sequence[str] = ()) -> tuple[Column, ...]:
    """Return columns that are named after their fields; `field:title` names one differently."""
    return tuple(_column(path, is_wide=False) for path in paths) + tuple(_column(path, is_wide=True) for path in wide)


def _column(text: str, *, is_wide: bool) -> Column:
    path, _, title = text.partition(":")
    return Column((title or path).upper().replace("_", " "), path, is_wide)


def printable(text: str) -> str:
    """Return a text without characters that a terminal would obey."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def is_coloured(stream: TextIO) -> bool:
    """Return whether colours may be written to a stream."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def colour(text: str, word: str, stream: TextIO) -> str:
    """Return a text in the colour of a word such as a status."""
    style = _STYLES.get(word)
    return f"{style}{text}{RESET}" if style and is_coloured(stream) else text


def value_at(item: Any, path: str) -> Any:
    """Return the value of a field, which may be a field of a field: `counts.status`."""
    for part in path.split("."):
        item = item.get(part) if isinstance(item, dict) else None
    return item


def cell(value: Any, zone: Zone = "UTC", own_zone: str = "UTC") -> str:
    """Return a value as one line of text."""
    if value is None or value in ("", [], {}):
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return local_time(value, zone, own_zone) if _INSTANT.fullmatch(value) else printable(_on_one_line(value))
    if isinstance(value, dict):
        return printable(_pairs(value))
    if isinstance(value, list) and all(isinstance(one, str | int) for one in value):
        return printable(",".join(map(str, value)))
    return printable(msgspec.json.encode(value).decode())


def _pairs(value: dict[str, Any]) -> str:
    """Return an object as one line: plain values, changes with `from` and `to`, or JSON."""
    values = value.values()
    if all(isinstance(one, str | int | float | None) for one in values):
        return ",".join(f"{name}={NOTHING if one is None else one}" for name, one in value.items())
    if all(isinstance(one, dict) and one.keys() == {"from", "to"} for one in values):
        return ", ".join(f"{name}: {cell(one['from'])} -> {cell(one['to'])}" for name, one in value.items())
    return msgspec.json.encode(value).decode()


def _on_one_line(text: str) -> str:
    return " ".join(text.splitlines()) if "\n" in text else text


def local_time(text: str, zone: Zone, own_zone: str) -> str:
    """Return a time as people read it, to the second, in a timezone."""
    moment = datetime.fromisoformat(text).replace(microsecond=0)
    if zone == "UTC":
        return moment.strftime("%Y-%m-%d %H:%M:%SZ")
    if zone == "local":
        return moment.astimezone().isoformat(sep=" ")
    from zoneinfo import ZoneInfo

    try:
        return moment.astimezone(ZoneInfo(own_zone)).isoformat(sep=" ")
    except (OSError, ValueError):
        return moment.astimezone(UTC).isoformat(sep=" ")


def json_text(value: Any, indent: int = 2) -> str:
    """Return a value as JSON; a negative indent is one line."""
    encoded = (
        msgspec.json.format(msgspec.json.encode(value), indent=indent) if indent >= 0 else msgspec.json.encode(value)
    )
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded.decode())


def yaml_text(value: Any) -> str:
    """Return a value as YAML; a text of several lines is a block."""
    import yaml

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        pass

    def text_node(dumper: Any, text: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Dumper.add_representer(str, text_node)
    dumped: str = yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)
    return dumped


def write(text: str) -> None:
    """Write to stdout at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def picked(item: Any, names: Sequence[str]) -> Any:
    """Return the fields of an object that the user asked for."""
    return {name: value_at(item, name) for name in names} if names else item


def print_item(item: Any, options: Printing, shape: Shape) -> None:
    """Print one object."""
    form, names = options.form, options.field_names
    if form == "name":
        write(f"{shape.noun}/{value_at(item, shape.id_path)}\n")
    elif form == "json":
        write(json_text(picked(item, names)) + "\n")
    elif form == "jsonl":
        write(json_text(picked(item, names), indent=-1) + "\n")
    elif form == "yaml":
        write(yaml_text(picked(item, names)))
    elif form == "csv":
        print_items([Page([item], {})], options, shape)
    else:
        write(_listing(picked(item, names), options))


def print_answer(answer: Any, items: Sequence[Any], options: Printing, shape: Shape) -> None:
    """Print an answer that has a list in it: tables, CSV and names show the list, the other forms the whole."""
    if options.form in {"json", "jsonl", "yaml"}:
        print_item(answer, options, shape)
    elif items or options.form not in {"table", "wide"}:
        print_items([Page(list(items), {})], options, shape)


def _listing(item: Any, options: Printing) -> str:
    """Return the fields of an object below each other; without empty ones, unless the form is wide."""
    if not isinstance(item, dict):
        return f"{cell(item, options.zone)}\n"
    own_zone = str(item.get("timezone") or "UTC")
    rows = [(name, value, cell(value, options.zone, own_zone)) for name, value in item.items()]
    shown = [row for row in rows if row[2] != NOTHING or options.form == "wide" or options.fields]
    width = max((len(name) for name, *_ in shown), default=0)
    return "".join(f"{name.ljust(width)}{GAP}{colour(text, str(value), sys.stdout)}\n" for name, value, text in shown)


def print_items(pages: Iterable[Page], options: Printing, shape: Shape) -> None:
    """Print a list, each page as soon as it is there."""
    printers: dict[str, Callable[[Iterable[Page], Printing, Shape], None]] = {
        "json": _print_json,
        "jsonl": _print_json_lines,
        "yaml": _print_yaml,
        "csv": _print_csv,
        "name": _print_names,
    }
    printers.get(options.form, _print_table)(pages, options, shape)


def _print_json(pages: Iterable[Page], options: Printing, shape: Shape) -> None:  # noqa: ARG001 - as its neighbours
    """Print the answer of the API; the pages of a long list become one answer."""
    members: dict[str, Any] = {}
    write('{\n  "items": [')
    separator = "\n"
    for page in pages:
        members |= page.members
        for item in page.items:
            text = json_text(picked(item, options.field_names)).replace("\n", "\n    ")
            sys.stdout.write(f"{separator}    {text}")
            separator = ",\n"
        sys.stdout.flush()
    rest = "".join(f",\n  {json_text(name)}: {_nested(value)}" for name, value in members.items())
    write(("]" if separator == "\n" else "\n  ]") + rest + "\n}\n")


def _nested(value: Any) -> str:
    return json_text(value).replace("\n", "\n  ")


def _print_json_lines(pages: Iterable[Page], options: Printing, shape: Shape) -> None:  # noqa: ARG001 - as above
    for item in _items(pages):
        sys.stdout.write(json_text(picked(item, options.field_names), indent=-1) + "\n")


def _print_yaml(pages: Iterable[Page], options: Printing, shape: Shape) -> None:  # noqa: ARG001 - as above
    is_empty = True
    for item in _items(pages):
        is_empty = False
        sys.stdout.write(yaml_text([picked(item, options.field_names)]))
    if is_empty:
        write("[]\n")


def _print_csv(pages: Iterable[Page], options: Printing, shape: Shape) -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    paths = options.field_names or [column.path for column in shape.columns]
    writer.writerow(paths)
    for item in _items(pages):
        writer.writerow([_csv_value(value_at(item, path)) for path in paths])


def _csv_value(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, str | int | float):
        return value
    return msgspec.json.encode(value).decode()


def _print_names(pages: Iterable[Page], options: Printing, shape: Shape) -> None:  # noqa: ARG001 - as above
    for item in _items(pages):
        sys.stdout.write(f"{shape.noun}/{value_at(item, shape.id_path)}\n")


def _items(pages: Iterable[Page]) -> Iterator[Any]:
    for page in pages:
        yield from page.items
        sys.stdout.flush()


def _print_table(pages: Iterable[Page], options: Printing, shape: Shape) -> None:
    """Print rows in columns whose widths are those of the first page."""
    shown = _columns_of(options, shape)
    widths: list[int] = []
    count, members = 0, {}
    for page in pages:
        rows = [_row(item, shown, options.zone) for item in page.items]
        if not widths:
            titles = [column.title for column in shown]
            widths = column_widths([titles, *rows], _room() if options.form == "table" else None)
            _print_row(titles, widths)
        for row in rows:
            _print_row(row, widths)
        sys.stdout.flush()
        count, members = count + len(rows), page.members
    if len(widths) < len(shown):
        say("Columns that do not fit are left out; -o wide shows them.")
    if members.get("next_cursor"):
        total = f" of {members['total']:,}" if isinstance(members.get("total"), int) else ""
        say(f"{count:,}{total} shown; --limit 0 shows all.")
    elif not count:
        say("There are none.")


def _room() -> int | None:
    """Return the width of the terminal, or None where there is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _columns_of(options: Printing, shape: Shape) -> list[Column]:
    if options.field_names:
        return [_column(name, is_wide=False) for name in options.field_names]
    return [column for column in shape.columns if options.form == "wide" or not column.is_wide]


def _row(item: Any, shown: Sequence[Column], zone: Zone) -> list[str]:
    own_zone = str(item.get("timezone") or "UTC") if isinstance(item, dict) else "UTC"
    return [cell(value_at(item, column.path), zone, own_zone) for column in shown]


def column_widths(rows: Sequence[Sequence[str]], room: int | None) -> list[int]:
    """Return the widths of the columns, of titles and rows; those at the end that do not fit are left out.

    An id is cut first where a name stands beside it: its beginning is enough to find the object. Then long texts are
    cut, but never times.
    """
    texts_of = list(zip(*rows, strict=True))
    widths = [max(map(cell_width, texts)) for texts in texts_of]
    if room is None or _line_width(widths) <= room:
        return widths
    has_names = any(texts[0] == "NAME" for texts in texts_of)
    widths = [
        SHORTENED_ID if has_names and _are_ids(texts) else width for texts, width in zip(texts_of, widths, strict=True)
    ]
    smallest = [min(width, _floor(texts)) for texts, width in zip(texts_of, widths, strict=True)]
    while _line_width(widths) > room:
        index = max(range(len(widths)), key=lambda one: (widths[one] > smallest[one], widths[one]))
        if widths[index] > smallest[index]:
            widths[index] -= 1
        elif len(widths) > 1:
            widths.pop()
        else:
            break
    return widths


def _line_width(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _are_ids(texts: Sequence[str]) -> bool:
    """Return whether a column has ids below its title."""
    return len(texts) > 1 and all(map(_ID.fullmatch, texts[1:]))


def _floor(texts: Sequence[str]) -> int:
    """Return how narrow a column can be made; the first of its texts is the title."""
    are_words = texts[0] != "NAME" and all(map(_WORD.fullmatch, texts[1:]))
    is_whole = are_words or _are_ids(texts) or any(map(_SHOWN_TIME.fullmatch, texts))
    return max(map(cell_width, texts)) if is_whole else NARROWEST_COLUMN


def _print_row(texts: Sequence[str], widths: Sequence[int]) -> None:
    # Columns at the end that do not fit have no width.
    cells = [colour(_fitted(text, width), text, sys.stdout) for text, width in zip(texts, widths, strict=False)]
    sys.stdout.write(GAP.join(cells).rstrip() + "\n")


def _fitted(text: str, width: int) -> str:
    """Return a text in a column: cut on a narrow terminal, else padded."""
    if sys.stdout.isatty():
        text = fitted_text(text, width)
    return text + " " * (width - cell_width(text))


def fitted_text(text: str, width: int) -> str:
    """Return a text that takes at most this many columns of a terminal."""
    if cell_width(text) <= width:
        return text
    while cell_width(text) > width - 1:
        text = text[:-1]
    return f"{text}…"


def cell_width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text
    )


def show_list(fetch: Callable[[], Iterable[Page]], options: Showing, shape: Shape) -> None:
    """Print a list, and with `--watch` its changes until the user stops it."""
    if not options.watch:
        print_items(_sorted(fetch(), options), options, shape)
    elif sys.stdout.isatty():
        _redraw(lambda: print_items(_sorted(fetch(), options), options, shape))
    else:
        _print_changes(fetch, options, shape)


def show_item(fetch: Callable[[], Any], options: Showing, shape: Shape) -> None:
    """Print an object, and with `--watch` its changes until the user stops it."""
    if not options.watch:
        print_item(fetch(), options, shape)
    elif sys.stdout.isatty():
        _redraw(lambda: print_item(fetch(), options, shape))
    else:
        _print_changes(lambda: [Page([fetch()], {})], options, shape)


def _redraw(draw: Callable[[], None]) -> None:
    while True:
        write(CLEAR_SCREEN)
        draw()
        time.sleep(WATCH_SECONDS)


def _print_changes(fetch: Callable[[], Iterable[Page]], options: Printing, shape: Shape) -> None:
    """Print each object when it is new or has changed: as a line of JSON, or as a row."""
    known: dict[str, Any] = {}
    while True:
        items = [item for page in fetch() for item in page.items]
        changed = [item for item in items if known.get(str(value_at(item, shape.id_path))) != item]
        known = {str(value_at(item, shape.id_path)): item for item in items}
        if options.form in {"json", "jsonl", "yaml"}:
            _print_json_lines([Page(changed, {})], options, shape)
        elif changed:
            print_items([Page(changed, {})], options, shape)
        time.sleep(WATCH_SECONDS)


def _sorted(pages: Iterable[Page], options: Printing) -> Iterable[Page]:
    """Return a list in the order of `--sort`, where the API cannot sort it."""
    sort = getattr(options, "sort", "")
    if not sort:
        return pages
    found = list(pages)
    path = sort.removeprefix("-")
    items = sorted((item for page in found for item in page.items), key=lambda one: _sort_key(value_at(one, path)))
    return [Page(items[::-1] if sort.startswith("-") else items, found[-1].members if found else {})]


def _sort_key(value: Any) -> tuple[int, float, str]:
    """Return a key that orders numbers, then texts, then what is absent."""
    if isinstance(value, int | float):
        return (0, float(value), "")
    return (2, 0.0, "") if value is None else (1, 0.0, str(value))
