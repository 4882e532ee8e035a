"""Slots that are left out, run after all or moved: ``skip``, ``backfill``, ``pause --until``, ``load``.

Covers app.cli.load, app.cli.schedule_changes, app.cli.interaction.
"""

import csv
import io
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.cli.fields import keeping
from app.cli.interaction import exit_by_operation, wait_for_operation, wait_for_run
from app.cli.load import forecast_lines, load_rows, spread_sentence
from app.cli.schedule_changes import backfill_sentence, for_each
from app.client.connection import Connection
from app.client.contexts import Target
from app.client.errors import ClientError
from tests.support.carillon import Carillon, Json, working
from tests.support.command_line import CommandLine


def unique(prefix: str = "s") -> str:
    """Return a name that no other test has."""
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


async def test_slots_are_left_out_and_fire_after_all(cli: CommandLine, standing: Carillon) -> None:
    """The next ones or one by its time; taken back one by one or all; the answer in every form."""
    schedule = await standing.schedule(name=unique("two words"), cron="0 6 * * *")
    name = schedule["name"]

    async def left_out() -> list[str]:
        slots = (await cli("schedule", "slots", name, "--ahead", "4", "--json")).json()["items"]
        return sorted(slot["slot"] for slot in slots if slot["outcome"] == "skipped_request")

    done = await cli("schedule", "skip", name, "--next", "2", "--note", "holiday")
    first, second = await left_out()
    events = await standing.call("GET", "/audit/", params={"object_id": schedule["id"], "via": "cli"})
    assert 1 == len(events["items"])
    assert ["SLOT", first.replace("T", " "), second.replace("T", " ")] == done.out.splitlines()
    assert f"2 slots are left out. To take that back: carillon schedule skip '{name}' --undo\n" == done.err
    (third,) = (await cli("schedule", "skip", name, "--next", "1", "--json")).json()["skipped"]
    assert 0 == (await cli("schedule", "skip", name, "--undo", "--slot", first, "--slot", third)).code
    assert [second] == await left_out()
    assert f"slot/{first}\n" == (await cli("schedule", "skip", name, "--slot", first, "-o", "name")).out
    assert f"slot\n{third}\n" == (await cli("schedule", "skip", name, "--from", third, "--to", third, "-o", "csv")).out
    assert [first, second, third] == await left_out()
    assert (0, "") == ((undone := await cli("schedule", "skip", name, "--undo")).code, undone.out)
    assert [] == await left_out()
    assert 2 == (await cli("schedule", "skip", name, "--undo", "--next", "1")).code
    assert (2, True) == ((asked := await cli("schedule", "skip", name)).code, "Which slots?" in asked.err)
    missing = await cli("schedule", "skip", str(uuid.uuid4()), "--next", "1")
    assert (3, "carillon: There is no such schedule.\n") == (missing.code, missing.err)


async def test_past_slots_run(cli: CommandLine, standing: Carillon) -> None:
    """After a dry run and a question; one that is not awaited can be cancelled."""
    schedule = await standing.schedule(name=unique(), cron="0 * * * *")
    now = datetime.now(UTC)
    begin, end = ((now - timedelta(hours=hours)).isoformat() for hours in (5, 1))
    own = ("schedule", "backfill", schedule["name"], "--from", begin, "--to", end)
    tried = await cli(*own, "--dry-run", "-o", "csv")
    slots = [row["slot"] for row in csv.DictReader(io.StringIO(tried.out))]
    assert (4, True) == (len(slots), tried.err.startswith("4 slots would run, in about "))
    assert slots == [one["slot"] for one in (await cli(*own, "--dry-run", "--json")).json()["slots"]]
    asked = await cli(*own)
    assert (2, True) == (asked.code, "Run 4 slots? Nothing was changed." in asked.err)
    waiting = (await cli(*own, "--yes", "--no-wait", "--rate", "1/h", "--json")).json()
    async with working(standing.settings):
        cancelled = await cli("operation", "cancel", waiting["id"], "--wait")
        assert (0, True) == (cancelled.code, "failed of 4. It is cancelled." in cancelled.err)
        done = await cli(*own, "--only", "all", "--max-concurrent", "2", "--yes", "--note", "again", "--json")
        assert (4, "again") == (done.json()["done"], done.json()["note"])
        assert "backfill: 4 ran, 0 left alone, 0 failed of 4.\n" in done.err
    nothing = await cli(*own, "--yes")
    assert (0, "No slot of this range would run.\n") == (nothing.code, nothing.err)


async def test_a_pause_ends_by_itself(cli: CommandLine, standing: Carillon) -> None:
    """At a time, or after a duration; what was changed before an error is shown."""
    schedules = [await standing.schedule(name=unique()) for _ in range(3)]
    names = [schedule["name"] for schedule in schedules]
    before = datetime.now(UTC)
    paused = await cli("schedule", "pause", names[0], "--until", "2h", "--json")
    until = datetime.fromisoformat(paused.json()["paused_until"])
    assert timedelta(hours=2) <= until - before < timedelta(hours=2, minutes=5)
    nobody = str(uuid.uuid4())
    some = await cli("schedule", "pause", names[1], nobody, names[2], "--until", "2096-01-01T00:00:00Z", "-o", "name")
    assert (3, f"schedule/{schedules[1]['id']}\n") == (some.code, some.out)
    assert some.err.startswith("Done for 1 of 3 schedules.\n")
    assert "2096-01-01T00:00:00Z" == (await standing.get(schedules[1]))["paused_until"]
    assert "active" == (await standing.get(schedules[2]))["status"]
    assert 2 == (await cli("schedule", "pause", names[2], "--until", "yesterday")).code


async def test_the_load_to_come_is_shown_and_spread(cli: CommandLine, standing: Carillon) -> None:
    """As a curve with its groups, and as rows; a proposal is applied after a question, and then there is none left.

    By a member, whose peak does not depend on the schedules of other tests.
    """
    label = unique("l")
    member = await standing.member(unique("m"))
    cli = CommandLine(cli.server, cli.folder, member.token)
    workflow = await member.workflow()
    made = [await member.schedule(workflow, name=unique(), cron="0 3 * * *", labels={"x": label}) for _ in range(4)]
    own = ("--filter", f"label=x={label}")
    curve = await cli("load", "forecast", *own, "--by", "schedule")
    assert (0, True) == (curve.code, " steps, 4 runs\n" in curve.out)
    assert {schedule["name"] for schedule in made} <= {line.split(" ")[0] for line in curve.out.splitlines()}
    rows = csv.DictReader(io.StringIO((await cli("load", "forecast", *own, "--bucket", "3600", "-o", "csv")).out))
    assert 4 == sum(int(row["fires"]) for row in rows)
    proposed = await cli("load", "spread", *own, "-o", "csv")
    assert (0, "id,name,set") == (proposed.code, proposed.out.splitlines()[0])
    assert 2 == (await cli("load", "spread", *own, "--apply")).code
    assert {"0 3 * * *"} == {(await member.get(one))["cron"] for one in made}
    applied = await cli("load", "spread", *own, "--apply", "--yes")
    assert (0, True) == (applied.code, " schedules were changed.\n" in applied.err)
    assert {"0 3 * * *"} != {(await member.get(one))["cron"] for one in made}
    again = await cli("load", "spread", *own)
    assert (0, "", True) == (again.code, again.out, "No change within the bounds" in again.err)


def test_figures_become_rows() -> None:
    """What did not fire is counted; a step without a fire has no lateness."""
    outcomes = [{"at": "a", "outcomes": {"fired": 3, "queued": 1, "missed": 2}}, {"at": "b", "outcomes": {}}]
    lateness = [{"at": "a", "p50_ms": 1.5, "p99_ms": 9.0}]
    assert [
        {"at": "a", "fired": 4, "not_fired": 2, "p50_ms": 1.5, "p99_ms": 9.0},
        {"at": "b", "fired": 0, "not_fired": 0, "p50_ms": None, "p99_ms": None},
    ] == load_rows(outcomes, lateness)


def test_forecasts_are_short() -> None:
    """Ten groups at most; names that are too long are cut; an estimate is named as one."""
    buckets = [{"at": "2030-01-01T00:00:00Z", "fires": 11}, {"at": "2030-01-01T00:05:00Z", "fires": 1}]
    groups = [{"key": n, "name": "n" * 40, "fires": 1, "buckets": [1, 0]} for n in range(12)]
    answer: Json = {
        "buckets": buckets,
        "groups": groups,
        "is_estimate": True,
        "peak": {"at": buckets[0]["at"], "fires": 11},
        "quiet": [],
    }
    lines = forecast_lines(answer)
    assert "2030-01-01 00:00:00Z to 2030-01-01 00:05:00Z, 2 steps, about 12 runs" == lines[0]
    assert ("n" * 29 + "…  |@ |  1 run", "and 2 more; -o json shows all", 14) == (lines[3], lines[-1], len(lines))
    empty = {**answer, "buckets": [{"at": "a", "fires": 0}]}
    assert ["Nothing runs in this time."] == forecast_lines(empty)


def test_sentences_count() -> None:
    """One, several and none; how an operation ended is said."""
    peak: Json = {"at": "2030-01-01T00:00:00Z", "fires": 1}
    assert "is 1 run, at 2030-01-01 00:00:00Z; with this change it is 1," in spread_sentence(
        {"before": peak, "after": peak, "changes": [{}]}
    )
    tried = {"count": 101, "slots": [{}] * 100, "estimate_seconds": 1234.5}
    assert "101 slots would run, in about 1,234 s. The first 100 are named." == backfill_sentence(tried)
    counts: Json = {"done": 1, "skipped": 0, "failed": 0, "total": 2, "errors": [], "action": "run", "id": "x"}
    assert 1 == exit_by_operation({**counts, "status": "failed", "error": "The schedule is gone."})
    assert 0 == exit_by_operation({**counts, "status": "done", "error": ""})


def test_what_was_done_before_ctrl_c_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Of several schedules, those that were changed."""
    shown: list[Any] = []

    def act(_connection: Connection, schedule_id: str) -> str:
        if schedule_id == "c":
            raise KeyboardInterrupt
        return schedule_id

    connection = Connection(Target(url="http://127.0.0.1:1", token="", source="test"))
    with pytest.raises(KeyboardInterrupt):
        for_each(connection, ["a", "b", "c", "d"], act, shown.extend)
    assert (["a", "b"], "Done for 2 of 4 schedules.\n") == (shown, capsys.readouterr().err)


def test_an_interrupted_change_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that was sent may have been carried out; nothing is said of one that only reads."""
    said: list[str] = []
    connection = Connection(Target(url="http://127.0.0.1:1", token="", source="test"), said.append)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(connection, "_request", interrupt)
    for method in ("GET", "PATCH"):
        with pytest.raises(KeyboardInterrupt):
            connection.call(method, "/x/", params={"a": 1})
    assert ["\nInterrupted before the answer to PATCH /api/v1/x/: it may have been carried out."] == said


@pytest.mark.parametrize(
    ("wait", "hint"),
    [
        (lambda connection: wait_for_run(connection, "r", None), "carillon run watch r"),
        (lambda connection: wait_for_operation(connection, {"id": "o", "action": "pause"}), "operation cancel o"),
    ],
)
def test_what_goes_on_after_ctrl_c_is_said(
    wait: Callable[[Connection], Any],
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A run and an operation do not end with the command; neither do they if the server is away."""
    connection = Connection(Target(url="http://127.0.0.1:1", token="", source="test"))
    with pytest.raises(ClientError) as lost:
        wait(connection)
    assert ("cannot be reached" in lost.value.message, " go" in lost.value.hint) == (True, True)

    def interrupt(_path: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(connection, "get", interrupt)
    with pytest.raises(KeyboardInterrupt):
        wait(connection)
    assert hint in capsys.readouterr().err


def test_an_edited_text_is_not_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is kept if the change is refused or interrupted, and deleted once it is stored."""
    draft = tmp_path / "draft.yaml"
    draft.touch()
    with pytest.raises(ClientError, match="refused") as refused, keeping(draft):
        raise ClientError("refused")
    with pytest.raises(KeyboardInterrupt), keeping(draft):
        raise KeyboardInterrupt
    assert (True, True) == (str(draft) in refused.value.hint, str(draft) in capsys.readouterr().err)
    with keeping(draft):
        assert draft.exists()
    assert not draft.exists()


def test_a_token_is_not_quoted() -> None:
    """Not even one that no header can have."""
    with pytest.raises(ClientError) as refused:
        Connection(Target(url="http://127.0.0.1:1", token="secret\n", source="test"))
    assert "secret" not in refused.value.message


async def test_what_a_rate_needs_is_shown(cli: CommandLine, standing: Carillon) -> None:
    """For a rate, or for the peak that the server forecasts; as text and as values. A negative rate is refused."""
    shown = await cli("load", "capacity", "--rate", "1000", "--work", "noop")
    assert (0, "workers   0.38 cores, 1 process") == (shown.code, shown.out.splitlines()[1])
    values = (await cli("load", "capacity", "--rate", "2000", "-o", "json")).json()
    assert (2000, 2) == (values["fires_per_second"], values["workers"])
    await standing.schedule(name=unique(), interval_seconds=1)
    assert (await cli("load", "capacity", "-o", "json")).json()["fires_per_second"] >= 1
    refused = await cli("load", "capacity", "--rate", "-1")
    assert (2, True) == (refused.code, "0 or more" in refused.err)
