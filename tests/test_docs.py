"""The pages of the repository: what they link to exists, and their examples work.

Covers README.md, CONTRIBUTING.md, SECURITY.md and docs.
"""

import json
import re
import shlex
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import Any

import pytest

from app.actions.catalog import Catalog
from app.actions.plugins import load_actions
from app.config import Settings
from app.domain.audit import AuditAction
from app.domain.entity_jobs import ScheduledJobConfig
from app.engine.entity_schedulers import scheduler_shortcomings
from app.persistence.database import Database
from app.services.declarations.files import Source, read_files
from app.services.inputs import ScheduleInput
from app.services.views import ScheduleView
from tests.support.carillon import ADMIN_TOKEN, Carillon, fire_and_read, http_node
from tests.support.http_sink import Sink

ROOT = Path(__file__).parent.parent
TOP_PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [*(ROOT / name for name in TOP_PAGES), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# `app/x.py`, `tests/x.py::test_y` or `docs/x.md`, also without quotes; `app/x` as well, which may be a folder.
NAMED = re.compile(r"(?<![\w/.])((?:app|tests|docs|helm|migrations)/[\w./-]*\w)")
# `app.engine.ticks.TickEngine`: the part in small letters is a module, or a module and a function of it.
MODULE = re.compile(r"`(app(?:\.[a-z_0-9]+)+)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARYING = {
    "TIME": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z",
    "ID": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "KEY": r"\b[0-9a-f]{32}\b",
}
HEADERS_OF_HTTP = {"host", "accept", "accept-encoding", "content-length"}
# The headers after `X-Carillon-`, and the fields of the event that say the same.
IN_BOTH = {
    "schedule": "scheduled_job_id",
    "execution": "execution_id",
    "slot": "scheduled_for",
    "attempt": "attempt",
}
DECISION_HEADINGS = ["Context", "Decision", "Consequences", "What would change our mind"]


def page_id(page: Path) -> str:
    """Return the page's path in the repository, for the names of tests."""
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_link(page: Path, target: str) -> bool:
    """Return whether a link of the page leads to no file, or to no heading of it."""
    if target.startswith(("https://", "http://")):
        return False
    path, _, anchor = target.partition("#")
    linked = (page.parent / path).resolve() if path else page
    return not linked.exists() or (bool(anchor) and anchor not in anchors(linked))


def is_module(name: str) -> bool:
    """Return whether a dotted name is a module of ours, or something that stands in one."""
    path = ROOT / name.replace(".", "/")
    if path.is_dir() or path.with_suffix(".py").exists():
        return True
    parent, _, member = name.rpartition(".")
    file = (ROOT / parent.replace(".", "/")).with_suffix(".py")
    return file.exists() and re.search(rf"\b{member}\b", file.read_text()) is not None


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    """Every link inside the repository leads to a file, and to a heading where it names one."""
    assert [] == [target for target in LINK.findall(page.read_text()) if broken_link(page, target)]


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_files_that_are_named_exist(page: Path) -> None:
    """Every `app/...`, `tests/...`, `docs/...` in a page is a file or a folder, and every `app.x.y` a module."""
    text = page.read_text()
    assert [] == [name for name in NAMED.findall(text) if not (ROOT / name).exists()]
    assert [] == [name for name in MODULE.findall(text) if not is_module(name)]


def test_the_table_of_changes_is_long_enough_and_names_files() -> None:
    """CONTRIBUTING.md answers at least 20 times "I want to change X: open Y"; each row names a place to open."""
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("## I want to change X: open Y")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "I want to change |" not in line]
    assert len(rows) >= 20
    assert [] == [row for row in rows if not re.search(r"`(app|docs|helm)/", row)]


def test_the_walk_through_a_tick_is_short() -> None:
    """docs/design.md walks through a plain tick in at most 20 files, each once."""
    walk = (ROOT / "docs" / "design.md").read_text().partition("## A plain tick, file by file")[2].partition("\n## ")[0]
    files = re.findall(r"^\d+\. \[(app/[\w/]+\.py)\]", walk, re.MULTILINE)
    assert 10 <= len(files) <= 20
    assert len(files) == len(set(files))


def test_every_setting_is_documented() -> None:
    """docs/settings.md names every setting that the code reads."""
    named = set(re.findall(r"`(?:CARILLON_)?([A-Z_]+)`", (ROOT / "docs" / "settings.md").read_text()))
    assert set() == {name.upper() for name in Settings.__struct_fields__} - named


def test_every_field_of_a_schedule_is_documented() -> None:
    """A table of docs/schedules.md has a row for every field that can be written, and for every field that is shown."""
    rows = [line for line in (ROOT / "docs" / "schedules.md").read_text().splitlines() if line.startswith("| `")]
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[0])}
    assert set() == {*ScheduleInput.__struct_fields__, *ScheduleView.__struct_fields__} - told


def test_decisions_have_one_form() -> None:
    """Each page of docs/decisions has the same four headings, and docs/design.md links to it."""
    design = (ROOT / "docs" / "design.md").read_text()
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert len(pages) >= 10
    for page in pages:
        assert DECISION_HEADINGS == re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE), page.name
        assert f"decisions/{page.name}" in design


def fenced(page: str, language: str) -> list[str]:
    """Return the blocks of code in this language."""
    return [code for name, code in FENCE.findall((ROOT / page).read_text()) if name == language]


def curl_calls() -> list[list[str]]:
    """Return the arguments of each curl command in the README's tour."""
    (tour,) = fenced("README.md", "bash")
    commands = re.split(r"^(?=curl |export |#)", tour, flags=re.MULTILINE)
    return [shlex.split(command, comments=True)[1:] for command in commands if command.startswith("curl ")]


async def test_the_tour_of_the_readme_works(carillon: Carillon) -> None:
    """Each curl command is answered with a success, in their order."""
    ids: dict[str, str] = {}
    for arguments in curl_calls():
        (address,) = (argument for argument in arguments if argument.startswith("$CARILLON"))
        options = dict(pairwise(arguments))
        body = json.loads(options["-d"]) if "-d" in options else None
        if body is not None and "workflow_id" in body:
            body["workflow_id"] = ids["workflows"]
        method = options.get("-X", "GET" if body is None else "POST")
        path = address.removeprefix("$CARILLON").replace("$ID", str(ids.get("schedules")))
        answer = await carillon.request(method, path, json=body)
        assert answer.is_success, (method, path, answer.text)
        if answer.status_code == 201:
            ids[path.strip("/")] = answer.json()["id"]
    assert {"workflows", "schedules"} == ids.keys()


async def test_the_tour_of_access_works(carillon: Carillon) -> None:
    """Each curl command in docs/access.md is answered as the page shows, but for ids, times and tokens."""
    given = {"AUTH": f"Authorization: Bearer {ADMIN_TOKEN}", "CARILLON": ""}
    cookies: dict[str, str] = {}
    for block in fenced("docs/access.md", "console"):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = step.partition("\n")
            words = shlex.split(Template(command).safe_substitute(given))
            if words[0] == "export":
                continue
            answer = await curl(carillon, words, cookies)
            assert sorted(json.loads(shown or "{}")) == sorted(answer), command
            if "code" in answer:
                assert json.loads(shown) == answer
            given["TOKEN"] = answer.get("token", given.get("TOKEN", ""))
    assert cookies


async def curl(carillon: Carillon, words: list[str], cookies: dict[str, str]) -> dict[str, Any]:
    """Send what a curl command asks for, and return the JSON of the answer; a jar holds the cookies."""
    options = list(pairwise(words))
    headers = dict(value.split(": ", 1) for name, value in options if name == "-H")
    if "-b" in words:
        headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
    body = dict(options).get("-d")
    method = dict(options).get("-X", "GET" if body is None else "POST")
    (path,) = (word for word in words if word.startswith("/"))
    content = {} if body is None else {"json": json.loads(body)}
    response = await carillon.with_token("").request(method, path, headers=headers, **content)
    if "-c" in words:
        cookies |= dict(response.cookies)
    return dict(response.json()) if response.content else {}


def test_every_action_of_the_audit_log_is_documented() -> None:
    """In the table of docs/operating.md, which has no others."""
    page = (ROOT / "docs" / "operating.md").read_text().partition("## The audit log")[2].partition("\n## ")[0]
    named = {name for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert set(AuditAction) == named


def without_ids_and_times(text: str) -> str:
    """Return a text with a word in place of each id, key and time, which differ from call to call."""
    for word, pattern in VARYING.items():
        text = re.sub(pattern, word, text)
    return text


async def test_the_example_of_a_call_is_what_a_target_receives(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """The call in docs/workflows.md equals one that a worker makes, but for ids and times."""
    (example,) = fenced("docs/workflows.md", "http")
    head, _, body = example.partition("\n\n")
    request, *lines = head.splitlines()
    event = json.loads(body)
    workflow = await carillon.workflow(http_node(f"{sink.url}{request.split()[1]}"))
    named = {"name": event["scheduled_job_name"], "trigger_payload": event["payload"]}
    await fire_and_read(carillon, settings, database, await carillon.schedule(workflow, **named))
    (call,) = await sink.wait_for_calls(1)
    assert request == f"{call.method} {call.path} HTTP/1.1"
    sent = {name: value for name, value in call.headers.items() if name not in HEADERS_OF_HTTP}
    shown = dict(line.split(": ", 1) for line in lines)
    told = {name.lower(): value for name, value in shown.items()}
    assert without_ids_and_times(json.dumps(sorted(told.items()))) == without_ids_and_times(
        json.dumps(sorted(sent.items()))
    )
    assert without_ids_and_times(json.dumps(event)) == without_ids_and_times(json.dumps(call.json))
    for headers, values in ((told, event), (sent, call.json)):
        assert all(headers[f"x-carillon-{name}"] == str(values[field]) for name, field in IN_BOTH.items())


def test_the_example_file_can_be_applied() -> None:
    """The YAML of docs/files.md is read without a problem."""
    (example,) = fenced("docs/files.md", "yaml")
    (file,) = read_files([Source("shop.yaml", example.encode())], Catalog(load_actions().actions))
    assert () == file.problems


def test_the_example_of_an_entity_scheduler_can_be_polled() -> None:
    """The code of docs/plugins.md conforms, and its table names every field of a job and every setting of polls."""
    (code,) = fenced("docs/plugins.md", "python")
    names: dict[str, type] = {}
    exec(compile(code, "docs/plugins.md", "exec"), names)
    assert [] == scheduler_shortcomings(names["ReportScheduler"]())
    text = (ROOT / "docs" / "plugins.md").read_text()
    told = set(re.findall(r"`(\w+)`", "".join(line.split(" | ")[0] for line in text.splitlines() if line[:3] == "| `")))
    settings = {f"CARILLON_{name.upper()}" for name in Settings.__struct_fields__ if name.startswith("poll_")}
    assert set() == {*ScheduledJobConfig.__struct_fields__, *settings} - told
