"""``carillon import`` as an operator types it; what it writes is really applied.

Covers app.cli.imports.
"""

import io
import sys
from pathlib import Path

import pytest

from app.cli import imports
from app.cli.main import app
from app.persistence.database import Database
from tests.support.carillon import Carillon
from tests.support.declarations import Applying, names, state
from tests.test_docs import fenced

CRONTAB = """\
CRON_TZ=Europe/Berlin
@reboot start-it
30 2 * * 1-5 backup --all
@every 5m docker inspect --format '{{.Id}}' x
"""
WORKFLOW = """\
namespace: crontab
workflows:
  - name: run it
    nodes:
      - {id: start, type: trigger_schedule}
      - {id: work, type: core.log, config: {message: "{{ trigger.payload.command }}"}}
    edges: [{from: start, to: work}]
"""


class Printed:
    """What a command printed, and its exit code."""

    def __init__(self, code: int, out: str, error: str) -> None:
        self.code = code
        self.out = out
        self.errors = error.splitlines()


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> Printed:
    """Run ``carillon import``."""
    try:
        app(["import", *map(str, words)], exit_on_error=False, result_action="return_value")
    except SystemExit as exited:
        return Printed(int(exited.code or 0), *capsys.readouterr())
    return Printed(0, *capsys.readouterr())


@pytest.fixture
def crontab(tmp_path: Path) -> Path:
    """A crontab with a line that cannot be converted."""
    path = tmp_path / "crontab"
    path.write_text(CRONTAB)
    return path


REBOOT = (
    "2: left out: @reboot names no time: it runs when a machine starts. Let the machine call the API then, to run a "
    "schedule."
)


def test_what_is_left_out_is_named_and_fails_unless_the_operator_goes_on(
    capsys: pytest.CaptureFixture[str], crontab: Path
) -> None:
    """The rest is written in both cases."""
    refused = run(capsys, "crontab", crontab)
    assert (2, [f"{crontab}:{REBOOT}"]) == (refused.code, refused.errors)
    assert 2 == refused.out.count("type: core.noop")
    accepted = run(capsys, "crontab", "--keep-going", crontab)
    assert (0, refused.out, refused.errors) == (accepted.code, accepted.out, accepted.errors)


def test_warnings_alone_do_not_fail(capsys: pytest.CaptureFixture[str], crontab: Path) -> None:
    """They say what differs."""
    crontab.write_text("MAILTO=paul\n@daily x\n")
    printed = run(capsys, "crontab", crontab, "--timezone", "europe/berlin")
    assert (0, True) == (printed.code, "timezone: Europe/Berlin" in printed.out)
    assert [f"{crontab}:1: warning: MAILTO has no counterpart"] == [
        error.partition(": cron mails")[0] for error in printed.errors
    ]


async def test_the_result_can_be_applied(
    capsys: pytest.CaptureFixture[str], crontab: Path, apply: Applying, carillon: Carillon, database: Database
) -> None:
    """Unchanged; and again without a difference."""
    written = run(capsys, "crontab", "--keep-going", crontab).out
    told = await apply(written)
    expected = ["backup --all", "docker inspect --format '{{.Id}}' x"]
    assert ([], expected) == (told.problems, await names(database))
    assert expected == await names(database, "workflows")
    assert [] == (await apply(written)).lines
    found = {one["name"]: one for one in (await carillon.call("GET", "/schedules/"))["items"]}
    nightly, interval = (found[name] for name in expected)
    assert ("30 2 * * 1-5", "Europe/Berlin", "allow", "skip") == tuple(
        nightly[name] for name in ("cron", "timezone", "if_running", "catch_up")
    )
    payload = (await carillon.get(interval))["trigger_payload"]
    assert (300, {"command": expected[1]}) == (interval["interval_seconds"], payload)
    (run_of_it,) = [row for row in (await state(database))["workflows"] if row["name"] == "backup --all"]
    assert {"description": "backup --all"} == run_of_it["nodes"][1]["config"]


async def test_the_result_can_be_applied_on_a_workflow_of_the_operator(
    capsys: pytest.CaptureFixture[str], crontab: Path, apply: Applying, database: Database
) -> None:
    """It is declared elsewhere, and gets the command as its payload."""
    written = run(capsys, "crontab", "--keep-going", crontab, "--workflow", "run it").out
    assert "core.noop" not in written
    told = await apply(WORKFLOW, written)
    assert ([], ["run it"]) == (told.problems, await names(database, "workflows"))
    assert 2 == len(await names(database))


def test_standard_input_and_an_output_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hyphen is standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CRONTAB.encode())))
    printed = run(capsys, "crontab", "-", "-o", tmp_path / "out.yaml", "--namespace", "mine")
    assert (2, "", [f"<stdin>:{REBOOT}"]) == (printed.code, printed.out, printed.errors)
    assert "namespace: mine\n" in (tmp_path / "out.yaml").read_text()


def test_bad_files_and_options_are_one_line(
    capsys: pytest.CaptureFixture[str], crontab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With exit code 2, and nothing on standard output."""
    binary, bad_yaml = tmp_path / "binary", tmp_path / "bad.yaml"
    binary.write_bytes(b"@daily x\n\xff\xfe\n")
    bad_yaml.write_text("a: [\n")
    for words, expected in (
        (["crontab", tmp_path], f"carillon: {tmp_path}: Is a directory"),
        (["crontab", tmp_path / "none"], f"carillon: {tmp_path}/none: No such file or directory"),
        (["crontab", "a\0b"], "carillon: a"),
        (["crontab", "/dev/zero"], "carillon: /dev/zero: The file is larger than"),
        (["crontab", "/dev/null"], "carillon: /dev/null: There is no schedule to convert."),
        (["crontab", binary], f"carillon: {binary}:2: This is not UTF-8."),
        (["cronjob", bad_yaml], f"carillon: {bad_yaml}:2: This is not YAML:"),
        (["ductile", bad_yaml], f"carillon: {bad_yaml}:2: This is not YAML:"),
        (["crontab", crontab, "--timezone", "Mars"], "carillon: --timezone: There is no timezone 'Mars'."),
        (["crontab", crontab, "--namespace", "a b"], "carillon: Some fields are not valid. namespace: "),
        (["crontab", crontab, "--workflow", ""], "carillon: Some fields are not valid. workflow: "),
    ):
        printed = run(capsys, *words)
        (error,) = printed.errors
        assert (2, "", True) == (printed.code, printed.out, error.startswith(expected)), error
    missing = run(capsys, "crontab", "--keep-going", crontab, "-o", tmp_path / "no" / "out")
    assert (2, f"carillon: {tmp_path}/no/out: No such file or directory") == (missing.code, missing.errors[-1])
    monkeypatch.setattr(imports, "MOST_BYTES", 10)
    assert 2 == run(capsys, "crontab", crontab).code


def test_a_terminal_is_not_obeyed(capsys: pytest.CaptureFixture[str], crontab: Path) -> None:
    """Escape sequences of a hostile file are not printed."""
    crontab.write_text("\x1b[2J * * * * x\n@daily fine\n")
    printed = run(capsys, "crontab", crontab, "--timezone", "UTC")
    assert 2 == printed.code
    assert not any("\x1b[2J" in error for error in printed.errors)
    assert "\x1b" not in printed.out


def replace_text(path: Path, text: str) -> None:
    """Write a file."""
    path.write_text(text)


def text_of(path: Path) -> str:
    """Read a file."""
    return path.read_text()


def console_steps(page: str) -> dict[str, list[str]]:
    """Return the commands of a page's only console, and what each prints."""
    (console,) = fenced(page, "console")
    steps = (step.splitlines() for step in f"\n{console}".split("\n$ ")[1:])
    return {command: printed for command, *printed in steps}


async def test_the_worked_example_of_the_docs(
    capsys: pytest.CaptureFixture[str], crontab: Path, apply: Applying, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/importing.md shows a crontab, what is printed about it, what comes out of it, and how that is applied."""
    page = "docs/importing.md"
    (source,), (expected,) = fenced(page, "crontab"), fenced(page, "yaml")
    (convert, said), (_, code), (_, applied) = console_steps(page).items()
    monkeypatch.chdir(crontab.parent)
    replace_text(crontab, source)
    printed = run(capsys, *convert.removeprefix("carillon import ").split())
    assert (said, code) == (printed.errors, [str(printed.code)])
    written = text_of(crontab.with_name("shop.yaml"))
    assert expected in written
    told = await apply(written)
    assert (applied[:-1], []) == (told.lines, told.problems)
