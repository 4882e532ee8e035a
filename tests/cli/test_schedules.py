"""``carillon schedule`` over HTTP.

Covers app.cli.lookup, app.cli.schedule_changes, app.cli.plans, app.cli.interaction, app.cli.fields, app.cli.runs.
"""

import csv
import io
import os
import uuid
from pathlib import Path

import pytest
import yaml

from app.cli.fields import assignments
from app.cli.interaction import confirm
from app.cli.plans import plan_lines
from app.cli.schedule_changes import READ_ONLY
from app.cli.schedules import parse_filter
from app.client.errors import ClientError, Exit
from app.services.inputs import ScheduleChanges
from app.services.views import ScheduleView
from tests.support.carillon import FAIL, Carillon, working
from tests.support.command_line import CommandLine


def unique(prefix: str = "s") -> str:
    """Return a name that no other test has."""
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


async def test_a_schedule_is_created_shown_and_found(cli: CommandLine, standing: Carillon) -> None:
    """By options; then by its name, its id, the beginning of its id and its key, in the API's own words."""
    name, workflow = unique(), unique("w")
    made = await standing.workflow(name=workflow)
    done = await cli(
        *("schedule", "create", name, "--workflow", workflow, "--every", "5m", "--key", f"k-{name}"),
        *("--label", "team=shop", "--set", "max_retries=5", "-o", "json"),
    )
    schedule = done.json()
    assert (made["id"], 5, {"team": "shop"}) == tuple(schedule[one] for one in ("workflow_id", "max_retries", "labels"))
    for text in (name, schedule["id"], schedule["id"][:9], f"k-{name}"):
        assert await standing.get(schedule) == (await cli("s", "get", text, "--json")).json()
    assert f"schedule/{schedule['id']}\n" == (await cli("schedule", "get", name, "-o", "name")).out
    shown = await cli("schedule", "get", name, "--zone", "schedule")
    assert ("", True) == (shown.err, name in shown.out)


async def test_lists_have_every_form(cli: CommandLine, standing: Carillon) -> None:
    """The same schedules as a table, JSON, lines of JSON, YAML, CSV and names; words go to stderr."""
    label = unique("l")
    made = [await standing.schedule(name=unique(), labels={"x": label}) for _ in range(3)]
    ids = [schedule["id"] for schedule in reversed(made)]
    own = ("schedule", "list", "-l", f"x={label}")
    answer = (await cli(*own, "-o", "json")).json()
    expected = await standing.call("GET", "/schedules/", params={"label": f"x={label}"})
    assert expected == answer
    lines = (await cli(*own, "-o", "jsonl", "--fields", "id,name")).out.splitlines()
    assert [f'{{"id":"{ids[0]}","name":"{made[2]["name"]}"}}', 3] == [lines[0], len(lines)]
    as_yaml = yaml.safe_load((await cli(*own, "-o", "yaml", "--fields", "id,labels")).out)
    assert [{"id": one, "labels": {"x": label}} for one in ids] == as_yaml
    rows = list(csv.DictReader(io.StringIO((await cli(*own, "-o", "csv", "--fields", "id,labels")).out)))
    assert [ids[0], f'{{"x":"{label}"}}'] == [rows[0]["id"], rows[0]["labels"]]
    assert "".join(f"schedule/{one}\n" for one in ids) == (await cli(*own, "-o", "name", "--limit", "0")).out
    assert {"items": []}.items() <= (await cli(*own, "--target-host", "no.such.host", "--json")).json().items()
    table = await cli(*own, "--limit", "2")
    assert (3, True) == (len(table.out.splitlines()), table.out.startswith("ID "))
    assert "2 of 3 shown; --limit 0 shows all.\n" == table.err
    sorted_names = [f"schedule/{one['id']}" for one in sorted(made, key=lambda one: str(one["name"]))]
    assert sorted_names == (await cli(*own, "--sort", "name", "-o", "name")).out.splitlines()
    assert sorted_names[::-1] == (await cli(*own, "--sort", "-name", "-o", "name")).out.splitlines()


async def test_states_are_changed(cli: CommandLine, standing: Carillon) -> None:
    """Paused, paused again (refused), resumed, deleted; each exit code says what happened."""
    schedule = await standing.schedule(name=unique())
    name = schedule["name"]
    paused = (await cli("schedule", "pause", name, "--note", "for a while", "-o", "json")).json()
    assert "paused" == paused["status"]
    again = await cli("schedule", "pause", name)
    assert (5, "carillon: Cannot pause job with status 'paused'.\n") == (again.code, again.err)
    assert "active" in (await cli("schedule", "resume", name)).out
    history = await cli("schedule", "history", name, "-o", "jsonl", "--fields", "action,note")
    assert '{"action":"paused","note":"for a while"}' in history.out
    assert 0 == (await cli("schedule", "delete", name)).code
    gone = await cli("schedule", "get", schedule["id"])
    assert (3, True) == (gone.code, gone.err.startswith("carillon: "))


async def test_errors_name_the_field_and_the_next_step(cli: CommandLine, standing: Carillon) -> None:
    """Bad input is 2, an unknown name 3, a wrong token 4, an unreachable server 1."""
    workflow = await standing.workflow()
    bad = await cli("schedule", "create", "x", "--workflow", str(workflow["id"]), "--cron", "nonsense")
    assert (2, True) == (bad.code, "  cron: " in bad.err)
    assert 2 == (await cli("schedule", "list", "--status", "nonsense")).code
    unknown = await cli("schedule", "get", "no such thing")
    assert (3, "") == (unknown.code, unknown.out)
    assert "carillon: There is no schedule 'no such thing'.\n  `carillon schedule list`" in unknown.err
    refused = await cli("schedule", "list", "--token", "wrong")
    assert (4, True) == (refused.code, "carillon login" in refused.err)
    away = await cli("schedule", "list", "--server", "http://127.0.0.1:1")
    assert (1, True) == (away.code, "127.0.0.1:1 cannot be reached" in away.err)
    assert "carillon doctor" in away.err


async def test_a_name_that_several_have_is_not_guessed(cli: CommandLine, standing: Carillon) -> None:
    """The candidates are listed; the id works."""
    name = unique()
    made = [await standing.schedule(name=name) for _ in range(2)]
    done = await cli("schedule", "pause", name)
    assert (2, True) == (done.code, all(one["id"] in done.err for one in made))
    assert 0 == (await cli("schedule", "pause", made[0]["id"])).code


async def test_a_schedule_is_found_by_a_few_characters_of_its_id(cli: CommandLine, standing: Carillon) -> None:
    """If no other id begins with them; else all that do are listed."""
    user = await standing.call("POST", "/users/", 201, json={"username": unique("u")})
    token = (await standing.call("POST", f"/users/{user['id']}/tokens/", 201, json={"name": "t"}))["token"]
    member = standing.with_token(token)
    workflow = await member.workflow()
    ids = [(await member.schedule(workflow, name="s"))["id"] for _ in range(17)]
    environ = {**cli.environ, "CARILLON_TOKEN": token}
    shared = next(digit for digit in "0123456789abcdef" if sum(one.startswith(digit) for one in ids) > 1)
    several = await cli("schedule", "get", shared, environ=environ)
    assert (2, [one for one in ids if one in several.err]) == (several.code, [one for one in ids if one[0] == shared])
    length = next(size for size in range(1, 37) if sum(one[:size] == ids[0][:size] for one in ids) == 1)
    assert f"schedule/{ids[0]}\n" == (await cli("schedule", "get", ids[0][:length], "-o", "name", environ=environ)).out
    assert 3 == (await cli("schedule", "get", "abcd", environ=environ)).code


async def test_many_are_changed_by_a_filter(cli: CommandLine, standing: Carillon) -> None:
    """Only with --yes where nobody can be asked; it says how many, and waits for the end."""
    label = unique("l")
    for _ in range(3):
        await standing.schedule(name=unique(), labels={"x": label})
    own = ("schedule", "pause", "--filter", f"status=active,label=x={label}")
    asked = await cli(*own)
    assert (2, True, True) == (asked.code, "3 schedules fit" in asked.err, "--yes" in asked.err)
    async with working(standing.settings):
        done = await cli(*own, "--yes", "--note", "by filter")
    assert (0, True) == (done.code, "pause: 3 changed, 0 left alone, 0 failed of 3." in done.err)
    assert 3 == len((await cli("s", "list", "-l", f"x={label}", "--status", "paused", "-o", "name")).out.splitlines())
    none = await cli(*own)
    assert (0, True) == (none.code, "0 schedules fit" in none.err)
    assert 2 == (await cli("schedule", "pause", "a", "--filter", "status=active")).code


async def test_a_run_is_awaited(cli: CommandLine, standing: Carillon) -> None:
    """0 if it succeeds, 6 if it fails, 7 if it does not end in time."""
    good, bad = await standing.schedule(name=unique()), await standing.schedule(await standing.workflow(FAIL))
    slow = await cli("schedule", "run", good["name"], "--wait", "--timeout", "0.05")
    assert (7, True) == (slow.code, "carillon run watch" in slow.err)
    async with working(standing.settings):
        done = await cli("schedule", "run", good["name"], "--wait", "--if-running", "queue", "-o", "json")
        failed = await cli("schedule", "run", bad["id"], "--wait")
    assert "success" == done.json()["status"]
    assert (6, True) == (failed.code, "The run ended as failed: Node 'work': boom" in failed.err)
    run_id = done.json()["id"]
    assert run_id in (await cli("run", "list", "--schedule", good["name"], "--status", "success", "-o", "name")).out
    assert run_id == (await cli("r", "get", run_id, "--json")).json()["id"]
    assert 5 == (await cli("run", "cancel", run_id)).code
    assert "manual" == (await cli("run", "again", run_id, "--json")).json()["trigger"]


async def test_slots_are_explained_and_previewed(cli: CommandLine, standing: Carillon) -> None:
    """In sentences for people, and as the API's JSON."""
    schedule = await standing.schedule(name=unique(), cron="0 8 * * 1-5")
    explained = await cli("schedule", "explain", schedule["name"])
    assert (0, (await standing.explain(schedule))["sentence"][:10]) == (explained.code, explained.out[:10])
    assert (await cli("schedule", "explain", schedule["name"], "--at", "2030-01-01T08:00:00Z", "--json")).json()[
        "checks"
    ]
    preview = await cli("schedule", "preview", schedule["name"], "--count", "3")
    assert (0, 4) == (preview.code, len(preview.out.splitlines()))
    again = await cli("schedule", "preview", "--cron", "0 8 * * 1-5", "--count", "3")
    assert preview.out == again.out
    slots = (await cli("schedule", "slots", schedule["name"], "--ahead", "2", "-o", "json")).json()
    assert ["expected", "expected"] == [item["outcome"] for item in slots["items"]]


async def test_a_schedule_is_edited(cli: CommandLine, standing: Carillon, tmp_path: Path) -> None:
    """In an editor, after a question; a refused text is kept."""
    schedule = await standing.schedule(name=unique(), timeout_seconds=60)
    editor = tmp_path / "editor.sh"
    editor.write_text('#!/bin/sh\nsed -i "s/^timeout_seconds: .*/timeout_seconds: $WANTED/" "$1"\n')
    editor.chmod(0o700)
    environ = {**cli.environ, "EDITOR": str(editor), "WANTED": "90"}
    asked = await cli("schedule", "edit", schedule["name"], environ=environ)
    assert (2, True) == (asked.code, "--yes" in asked.err)
    done = await cli("schedule", "edit", schedule["name"], "--yes", environ=environ)
    assert (0, 90) == (done.code, (await standing.get(schedule))["timeout_seconds"])
    same = await cli("schedule", "edit", schedule["name"], "--yes", environ=environ)
    assert (0, "Nothing is changed.\n") == (same.code, same.err)
    refused = await cli("schedule", "edit", schedule["name"], "--yes", environ={**environ, "WANTED": "0"})
    assert (2, True) == (refused.code, "timeout_seconds" in refused.err and "Your text is kept in" in refused.err)
    by_option = await cli("schedule", "edit", schedule["name"], "--yes", "--set", "timeout_seconds=30", "--json")
    assert 30 == by_option.json()["timeout_seconds"]


async def test_a_change_is_planned(cli: CommandLine, standing: Carillon) -> None:
    """8 if something would change, 0 if not; nothing is stored. The runs to come are listed."""
    schedule = await standing.schedule(name=unique(), cron="0 8 * * *")
    planned = await cli("schedule", "plan", schedule["name"], "--set", "cron=0 9 * * *")
    assert (8, True, True) == (planned.code, "  cron: " in planned.out, "  next run: " in planned.out)
    assert "0 8 * * *" == (await standing.get(schedule))["cron"]
    same = await cli("schedule", "plan", schedule["name"], "--set", "cron=0 8 * * *")
    assert (0, "Nothing would change.\n") == (same.code, same.out)
    coming = (await cli("schedule", "upcoming", schedule["name"], "--limit", "3", "--json")).json()["items"]
    assert [schedule["id"]] * 3 == [item["schedule_id"] for item in coming]
    edited = await cli("schedule", "edit", schedule["name"], "--set", "cron=0 9 * * *", "--yes")
    assert (0, True) == (edited.code, "  next run: " in edited.err)


async def test_a_file_has_the_fields(cli: CommandLine, standing: Carillon) -> None:
    """YAML from stdin, with a workflow by its name; options win."""
    workflow, name = unique("w"), unique()
    await standing.workflow(name=workflow)
    text = f"workflow: {workflow}\nname: other\ncron: 0 8 * * *\nstart_at: 2040-01-01T00:00:00Z\n"
    made = (await cli("schedule", "create", name, "-f", "-", "--json", stdin=text)).json()
    assert (name, "2040-01-01T00:00:00Z") == (made["name"], made["start_at"])
    bad = await cli("schedule", "create", name, "-f", "-", stdin="a: [")
    assert (2, True) == (bad.code, "is not valid YAML" in bad.err)


def test_filters_are_read() -> None:
    """Commas separate names that are known, so that values may have them."""
    assert {"status": "paused", "label": ["team=shop", "a=b"], "q": "invoice, late", "workflow_id": 7} == parse_filter(
        "status=paused,label=team=shop,q=invoice, late,label=a=b,workflow_id=7"
    )
    with pytest.raises(ClientError, match="expected name=value"):
        parse_filter("colour=red")


def test_values_are_json_or_text() -> None:
    """What is not JSON is a text."""
    assert {"a": 1, "b": "x=y", "c": {"d": None}} == assignments(["a=1", "b=x=y", 'c={"d":null}'])


def test_what_can_be_changed_is_offered_to_the_editor() -> None:
    """A field that PATCH takes is never left out of the edited text, and nothing else stands in it."""
    shown, writable = set(ScheduleView.__struct_fields__), set(ScheduleChanges.__struct_fields__)
    assert not READ_ONLY & writable
    assert shown <= READ_ONLY | writable


def test_a_plan_is_a_few_lines() -> None:
    """What changes, the next run, and the slots that come and go."""
    plan = {
        "changes": {"every": {"from": "5m", "to": "10m"}},
        "next_run_at": {"from": "a", "to": "b"},
        "slots": {
            "kept": 3,
            "added": [{"at": "z", "slot": "z"}],
            "removed": [str(one) for one in range(7)],
            "moved": [{"from": "x", "to": "y"}],
        },
        "lost": {"repeats": 0, "retry": True, "days": []},
        "warnings": ["late"],
    }
    assert [
        '  every: "5m" -> "10m"',
        "  next run: a -> b",
        "  slots added: z",
        "  slots removed: 0, 1, 2, 3, 4 and 2 more",
        "  slots moved: x -> y",
        "  the pending retry is lost",
        "  warning: late",
    ] == plan_lines(plan)


@pytest.mark.parametrize(
    ("answer", "code"), [("y\n", None), ("YES\n", None), ("n\n", 1), ("\n", 1), ("", 2), (None, 2)]
)
def test_a_question_is_answered_by_a_pipe(
    answer: str | None, code: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by `yes |`. Without an answer nothing is changed, also while the pipe stays open."""
    reading, writing = os.pipe()
    if answer is not None:
        os.write(writing, answer.encode())
        os.close(writing)
    with os.fdopen(reading) as stdin, monkeypatch.context() as patched:
        patched.setattr("sys.stdin", stdin)
        if code is None:
            confirm("Change it?", yes=False)
        else:
            with pytest.raises(ClientError) as refused:
                confirm("Change it?", yes=False)
            assert (code, True) == (refused.value.code, "Nothing was changed." in refused.value.message)
            assert ("--yes" in refused.value.hint) == (code == Exit.BAD_INPUT)
    if answer is None:
        os.close(writing)
