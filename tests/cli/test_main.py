"""How the command line starts and ends.

Covers app.cli.main, app.cli.output.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from app.cli.main import reordered
from app.cli.options import Format, Printing
from app.cli.output import (
    Shape,
    cell,
    cell_width,
    column_widths,
    columns,
    json_text,
    print_items,
    printable,
    yaml_text,
)
from app.client.connection import Page
from tests.support.carillon import Carillon
from tests.support.command_line import PROGRAM, CommandLine

HEAVY = (
    "sqlalchemy",
    "asyncpg",
    "litestar",
    "redis",
    "arq",
    "alembic",
    "structlog",
    "uvloop",
    "yaml",
    "jinja2",
    "rich.markdown",
)


def test_help_and_reading_import_little() -> None:
    """Neither a database driver nor a web framework: a command must start in a fraction of a second."""
    code = (
        "import sys\nfrom app.cli.main import run_command\n"
        "run_command(['--help'])\nrun_command(['schedule', 'get', 'x', '--server', 'http://127.0.0.1:1'])\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert "[]" == done.stderr.splitlines()[-1]


async def test_a_reader_that_leaves_is_no_error(cli: CommandLine) -> None:
    """As in `carillon ... | head`: nothing is said about it, though more than a pipe holds was not read."""
    process = await asyncio.create_subprocess_exec(
        *("bash", "-o", "pipefail", "-c", f"'{PROGRAM}' request GET /schema/openapi.json | head -c 1"),
        env=cli.variables(cli.environ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert (b"{", b"") == await process.communicate()
    assert 0 == process.returncode


async def test_ctrl_c_is_130(cli: CommandLine, standing: Carillon) -> None:
    """Without a traceback; what was printed before stays."""
    schedule = await standing.schedule(name="watched")
    process = await _started(cli, "schedule", "get", schedule["id"], "-o", "name", "--watch")
    assert process.stdout is not None
    assert b"schedule/" == (await process.stdout.readline())[:9]
    process.send_signal(signal.SIGINT)
    _, error = await process.communicate()
    assert (130, b"") == (process.returncode, error)


async def test_a_watched_schedule_has_its_timing(cli: CommandLine, standing: Carillon) -> None:
    """In a pipe each change is a row, with the same columns as in the list."""
    schedule = await standing.schedule(name="watched-timing", every="90m")
    process = await _started(cli, "schedule", "get", schedule["id"], "--watch")
    assert process.stdout is not None
    heading, row = [await process.stdout.readline() for _ in range(2)]
    process.send_signal(signal.SIGINT)
    await process.communicate()
    assert (True, True) == (b"TIMING" in heading, b" 90m " in row)


async def _started(cli: CommandLine, *words: str) -> asyncio.subprocess.Process:
    # A shell that starts the tests in the background makes its children ignore the signal.
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from app.cli import main; main()"
    )
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program),
        *words,
        env=cli.variables(cli.environ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-o", "json", "schedule", "list"], ["schedule", "list", "-o", "json"]),
        (["--server=http://x", "-w", "run", "list", "--", "a"], ["run", "list", "--server=http://x", "-w", "--", "a"]),
        (["schedule", "list", "-o", "json"], ["schedule", "list", "-o", "json"]),
        (["--help"], ["--help"]),
    ],
)
def test_common_options_may_stand_first(words: list[str], expected: list[str]) -> None:
    """They are moved behind the command that has them."""
    assert expected == reordered(words)


def test_a_terminal_obeys_no_name() -> None:
    """Control characters of data are replaced in tables and escaped in JSON."""
    assert "a\ufffd[31m" == printable("a\x1b[31m")
    assert '"a\\u001b\\u009b"' == json_text("a\x1b\x9b")


def test_cells_are_one_line() -> None:
    """Times to the second in the zone that is asked for; what is absent is a hyphen."""
    at = "2030-07-01T08:00:00.123Z"
    assert "2030-07-01 08:00:00Z" == cell(at)
    assert "2030-07-01 10:00:00+02:00" == cell(at, "schedule", "Europe/Berlin")
    assert ["-", "yes", "a=1,b=x", "1,2", '[{"a":1}]'] == [
        cell(one) for one in (None, True, {"a": 1, "b": "x"}, [1, 2], [{"a": 1}])
    ]
    assert "cron: a -> b, note: - -> x" == cell({"cron": {"from": "a", "to": "b"}, "note": {"from": None, "to": "x"}})
    assert [2, 4, 1] == [cell_width(one) for one in ("ab", "日本", "e\u0301")]
    assert ("ID", "id") == ((shown := Shape("x", columns("id")).columns[0]).title, shown.path)


def test_columns_fit_the_terminal() -> None:
    """Ids beside names are cut first, then long texts; times and words stay whole, or their column is left out."""
    one = "df80b310-393b-4a8d-8c92-6b43fe3ae0ed"
    rows = [
        ("ID", "NAME", "OUTCOME", "NEXT RUN", "TIMING"),
        (one, "n" * 30, "skipped_requested", "2030-01-01 00:00:00Z", "0 6,12,18 1 */2 1-5."),
    ]
    assert [36, 30, 17, 20, 20] == column_widths(rows, None) == column_widths(rows, 131)
    assert [9, 30, 17, 20, 20] == column_widths(rows, 130)
    assert [9, 13, 17, 20, 13] == column_widths(rows, 80)
    assert [9, 12, 17, 20] == column_widths(rows, 66)
    assert [9] == column_widths(rows, 5)
    runs = [("ID", "STATUS"), (one, "success")]
    assert [36] == column_widths(runs, 40)


@pytest.mark.parametrize("form", ["table", "wide", "json", "jsonl", "yaml", "csv", "name"])
def test_a_page_is_printed_before_the_next_is_read(form: Format, capsys: pytest.CaptureFixture[str]) -> None:
    """So that the first rows of a long list are there at once."""
    printed: list[str] = []

    def pages() -> Iterator[Page]:
        yield Page([{"id": "first"}], {"next_cursor": "x"})
        printed.append(capsys.readouterr().out)
        yield Page([{"id": "second"}], {"next_cursor": None})

    print_items(pages(), Printing(output=form), Shape("thing", columns("id")))
    assert ("first" in printed[0], "second" in capsys.readouterr().out) == (True, True)


def test_texts_of_several_lines_are_blocks() -> None:
    """In YAML; other texts are as they are."""
    assert "a: |\n  one\n  two\nb: x\n" == yaml_text({"a": "one\ntwo\n", "b": "x"})


def test_an_unknown_command_is_bad_input() -> None:
    """With a suggestion."""
    done = subprocess.run([PROGRAM, "schedul"], capture_output=True, text=True, check=False, timeout=60)
    assert (2, True) == (done.returncode, "schedule" in done.stderr)
