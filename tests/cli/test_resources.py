"""Workflows, users, tokens and the other nouns, over HTTP.

Covers app.cli.accounts, app.cli.admin, app.cli.doctor, app.cli.load, app.cli.top, app.cli.workflows.
"""

import uuid
from pathlib import Path

import pytest

from app.cli.doctor import clock_check, store_checks
from app.cli.load import heat
from app.cli.top import sparkline
from app.cli.workflows import as_dot, as_mermaid, as_text
from app.client.connection import Answer
from app.config import Settings
from tests.support.carillon import ADMIN_TOKEN, Carillon, Json, until, working
from tests.support.command_line import CommandLine, Done

GRAPH: Json = {
    "nodes": [{"id": "start", "type": "trigger_schedule"}, {"id": 'a"b', "type": "core.noop"}],
    "edges": [{"from": "start", "to": 'a"b'}],
}
FLOW = """\
nodes:
  - {id: start, type: trigger_schedule}
  - {id: work, type: core.noop}
edges: [{from: start, to: work}]
"""


def unique(prefix: str) -> str:
    """Return a name that no other test has."""
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


async def test_a_workflow_is_created_drawn_edited_and_deleted(cli: CommandLine, standing: Carillon) -> None:
    """From a file; its schedules go with it only after a question."""
    name = unique("w")
    made = (await cli("workflow", "create", name, "-f", "-", "--key", name, "--json", stdin=FLOW)).json()
    assert name == made["key"]
    assert "start (trigger_schedule) -> work\nwork (core.noop)\n" == (await cli("w", "graph", name)).out
    assert "flowchart TD\n" in (await cli("workflow", "graph", name, "-o", "mermaid")).out
    edited = await cli("workflow", "edit", name, "--set", "max_concurrent_runs=3", "--json")
    assert 3 == edited.json()["max_concurrent_runs"]
    assert made["id"] in [item["id"] for item in (await cli("workflow", "list", "--json")).json()["items"]]
    await standing.schedule(made)
    asked = await cli("workflow", "delete", name)
    assert (2, True) == (asked.code, f"Delete workflow {name} and its 1 schedules?" in asked.err)
    assert 0 == (await cli("workflow", "delete", name, "--yes")).code
    assert 3 == (await cli("workflow", "get", str(made["id"]))).code
    checked = await cli("workflow", "validate", "-f", "-", stdin=f"name: w\n{FLOW}")
    assert (0, "The workflow is valid.\n") == (checked.code, checked.err)
    bad = await cli("workflow", "validate", "-f", "-", stdin=f"name: w\n{FLOW}".replace("to: work", "to: nowhere"))
    assert (2, True) == (bad.code, "nowhere" in bad.err)
    bad = await cli("workflow", "create", name, "-f", "-", stdin=FLOW.replace("to: work", "to: nowhere"))
    assert (2, True) == (bad.code, "nowhere" in bad.err)


async def test_users_and_tokens_are_managed(cli: CommandLine, standing: Carillon) -> None:
    """A token alone on stdout, once; a member makes their own; a deleted one is refused."""
    name = unique("u")
    created = await cli("user", "create", name)
    assert (0, f"Created user {name} (id ") == (created.code, created.out[: len(name) + 18])
    token = await cli("token", "create", name, "--name", "laptop", "--scope", "operate", "--expires", "90d")
    secret = token.out.strip()
    assert (0, True, True) == (token.code, secret.startswith("carillon_"), "shown only once" in token.err)
    own = {**cli.environ, "CARILLON_TOKEN": secret}
    assert name == (await cli("whoami", "--json", environ=own)).json()["username"]
    assert "scopes read,operate" in " ".join((await cli("whoami", environ=own)).out.split())
    assert 4 == (await cli("user", "list", environ=own)).code
    (listed,) = (await cli("token", "list", name, "--json")).json()["items"]
    assert ("laptop", ["read", "operate"]) == (listed["name"], listed["scopes"])
    assert (0, "", True) == ((gone := await cli("token", "delete", str(listed["id"]))).code, gone.out, bool(gone.err))
    refused = await cli("whoami", environ=own)
    assert (4, True) == (refused.code, "carillon login" in refused.err)
    assert "True" == str((await cli("user", "edit", name, "--set", "disabled=true", "--json")).json()["disabled"])
    assert 0 == (await cli("user", "delete", name)).code
    assert 3 == (await cli("user", "get", name)).code


async def test_the_database_is_opened_where_no_server_is_known(cli: CommandLine, settings: Settings) -> None:
    """As before there is a token; `--database` says so even if a server is known."""
    environ = {"CARILLON_DATABASE_URL": settings.database_url}
    assert "Created user mia (id " in (await cli("user", "create", "mia", environ=environ)).out
    token = await cli("token", "create", "mia", "--database", "--json", environ={**cli.environ, **environ})
    assert ("cli", True) == (token.json()["name"], token.json()["token"].startswith("carillon_"))
    assert (1, True) == ((bad := await cli("token", "create", "nobody", environ=environ)).code, "nobody" in bad.err)


async def test_other_nouns_have_the_verbs_of_the_api(cli: CommandLine, standing: Carillon) -> None:
    """Created by --set, changed, listed and deleted."""
    made = await cli(
        "notification", "create", "https://example.com/hook", "--set", 'events=["schedule.dead"]', "--json"
    )
    one = made.json()["id"]
    changed = await cli("notification", "edit", str(one), "--set", "active=false", "-o", "yaml")
    assert (0, True) == (changed.code, "active: false" in changed.out)
    assert f"notification/{one}\n" in (await cli("notification", "list", "-o", "name", "--limit", "0")).out
    assert 0 == (await cli("notification", "deliveries", str(one))).code
    assert 0 == (await cli("notification", "delete", str(one))).code
    calendar = unique("c")
    assert 0 == (await cli("calendar", "create", calendar, "--set", 'dates=["2030-12-25"]')).code
    days = await cli("calendar", "edit", calendar, "--set", 'dates=["2030-12-26"]', "--json")
    assert ["2030-12-26"] == days.json()["dates"]
    assert 0 == (await cli("calendar", "delete", calendar)).code
    team = unique("t")
    assert team == (await cli("team", "create", team, "--json")).json()["name"]
    assert "owner" in (await cli("team", "members", team)).out
    assert 0 == (await cli("team", "delete", team)).code
    events = (await cli("audit", "--object-type", "team", "--json")).json()["items"]
    assert team in [event["object_name"] for event in events]
    assert 0 == (await cli("operation", "list")).code
    assert 0 == (await cli("session", "list")).code


async def test_the_doctor_says_what_is_wrong(cli: CommandLine, standing: Carillon) -> None:
    """Without a worker nothing fires: exit code 1; a wrong token and a server that is away are named."""

    async def is_well() -> Done | None:
        # A worker is seen once it has its lease, which lasts 3 s.
        done = await cli("doctor", "--json")
        return done if done.code == 0 else None

    async with working(standing.settings):
        well = await until(is_well)
    states = {check["check"]: check["state"] for check in well.json()["items"]}
    assert {"reachable", "clock", "login", "postgres", "redis", "versions", "migrations", "workers"} <= states.keys()
    # The clock in the headers of the tests' server stands still, and schedules of other tests may be late.
    assert {"ok"} == {state for check, state in states.items() if check not in {"clock", "lateness"}}
    wrong = await cli("doctor", "--token", "wrong")
    assert (1, True) == (wrong.code, "failed  login: " in wrong.out)
    away = await cli("doctor", "--server", "http://127.0.0.1:1")
    assert (1, True) == (away.code, "failed  reachable: " in away.out)
    lost = await cli("doctor", environ={})
    assert (1, True) == (lost.code, "failed  server: No server is known." in lost.out)


async def test_top_shows_a_pulse(cli: CommandLine) -> None:
    """With --once, one picture."""
    done = await cli("top", "--once")
    assert (0, True, True) == (done.code, "lateness" in done.out, "running" in done.out)


async def test_the_load_is_shown(cli: CommandLine) -> None:
    """In the terminal and as the API's figures."""
    assert 0 == (await cli("load", "show")).code
    assert {"outcomes", "lateness"} == (await cli("load", "show", "--json")).json().keys()


def test_graphs_are_quoted() -> None:
    """Ids may have any character."""
    assert '  n1["a&quot;b<br/>core.noop"]\n  n0 --> n1\n' in as_mermaid(GRAPH)
    assert '  "start" -> "a\\"b";\n' in as_dot(GRAPH)
    assert 'start (trigger_schedule) -> a"b\n' in as_text(GRAPH)


def test_curves_fit_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The highest value of neighbours counts, so that a peak is never lost."""
    assert "▁█▅" == sparkline([0, 10, 5])
    assert "|  @|" == heat([0, 0, 3])
    monkeypatch.setenv("COLUMNS", "55")
    shown = heat([0.0] * 99 + [5.0])
    assert (12, True) == (len(shown), shown.endswith("@|"))


def test_clocks_are_compared() -> None:
    """To the second that HTTP has."""
    assert "warning" == clock_check(Answer(200, {"date": "Tue, 01 Jan 2030 00:00:00 GMT"}, b""), 0.1).state
    assert "warning" == clock_check(Answer(200, {}, b""), 0.1).state


def test_a_warning_about_redis_is_shown() -> None:
    """Redis works, so that nothing fails."""
    body = b'{"postgres": "ok", "redis": "ok", "detail": "Redis: It evicts keys."}'
    postgres, redis = store_checks(Answer(200, {}, body))
    assert ("ok", "ok") == (postgres.state, postgres.detail)
    assert ("warning", "It evicts keys.") == (redis.state, redis.detail)


def test_the_token_of_the_tests_is_not_printed(cli: CommandLine, tmp_path: Path) -> None:
    """Not by an error about the server it belongs to."""
    done = cli.run(("schedule", "list", "--server", "http://127.0.0.1:1"))
    assert ADMIN_TOKEN not in done.out + done.err
