"""``carillon import cronjob``: Kubernetes CronJobs, and what becomes of each field.

Covers app.services.imports.cronjob.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.services.declarations.files import Source, read_file
from app.services.declarations.yaml_text import YamlProblemError, read_documents, write_documents
from app.services.imports.conversion import Import, Target, declare
from app.services.imports.cronjob import read_cronjobs, with_stepped_days
from tests.support.declarations import CATALOG
from tests.support.hypothesis_examples import examples

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HELLO = """\
apiVersion: batch/v1
kind: CronJob
metadata:
  name: hello
spec:
  schedule: "* * * * *"
  jobTemplate:
    spec:
      template:
        spec:
          containers:
          - name: hello
            image: busybox:1.28
            imagePullPolicy: IfNotPresent
            command:
            - /bin/sh
            - -c
            - date; echo Hello from the Kubernetes cluster
          restartPolicy: OnFailure
"""
FULL = """\
apiVersion: batch/v1
kind: CronJob
metadata:
  name: report
  namespace: shop
  labels: {team: sales}
  annotations: {note: nightly}
spec:
  schedule: "30 2 * * 1-5"
  timeZone: Europe/Berlin
  concurrencyPolicy: Replace
  startingDeadlineSeconds: 300
  suspend: true
  successfulJobsHistoryLimit: 3
  failedJobsHistoryLimit: 1
  jobTemplate:
    spec:
      backoffLimit: 2
      activeDeadlineSeconds: 1200
      ttlSecondsAfterFinished: 100
      parallelism: 2
      completions: 4
      template:
        spec:
          initContainers: [{name: prepare, image: tools}]
          containers:
          - {name: main, image: report:2, args: [--all, "two words"]}
          - {name: sidecar, image: proxy}
"""


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 30))


def converted(text: str, timezone: str | None = None) -> Import:
    """Convert manifests of a cluster in this timezone."""
    return declare(read_cronjobs(text, timezone), Target("cronjob"), NOW)


def schedules(result: Import) -> list[dict[str, Any]]:
    """Return the declared schedules."""
    declared: list[dict[str, Any]] = (result.document or {}).get("schedules", [])
    return declared


def changed(**spec: Any) -> str:
    """Return a CronJob with these fields of its spec instead."""
    lines = "".join(f"  {name}: {msgspec.json.encode(value).decode()}\n" for name, value in spec.items())
    return HELLO.replace('  schedule: "* * * * *"\n', lines)


def test_a_plain_cronjob() -> None:
    """The values that Kubernetes uses where the manifest is silent are written; the image and command are kept."""
    result = converted(HELLO)
    command = "/bin/sh -c 'date; echo Hello from the Kubernetes cluster'"
    assert [
        {
            "name": "hello",
            "workflow": "hello",
            "description": f"busybox:1.28 {command}",
            "cron": "* * * * *",
            "if_running": "allow",
            "misfire_grace_seconds": 31_536_000,
            "max_retries": 6,
            "backoff_base_seconds": 10,
            "trigger_payload": {"command": command, "image": "busybox:1.28"},
        }
    ] == schedules(result)
    pod = "the image 'busybox:1.28' and its command are written to trigger_payload, for a workflow to use."
    assert [
        (5, "startingDeadlineSeconds is not set: a run may start up to a year late (misfire_grace_seconds)."),
        (6, "timeZone is not set, so it is UTC. Name the timezone of the cluster with --timezone."),
        (8, "activeDeadlineSeconds is not set: a run is given up after 600 seconds, unless timeout_seconds is added."),
        (10, f"the pod is not run: {pod}"),
    ] == [(notice.line, notice.message) for notice in result.notices]
    assert result.is_complete


def test_every_field_that_has_a_counterpart() -> None:
    """The others are named with their lines."""
    result = converted(FULL)
    (schedule,) = schedules(result)
    expected = {
        "name": "shop/report",
        "labels": {"team": "sales"},
        "cron": "30 2 * * 1-5",
        "timezone": "Europe/Berlin",
        "if_running": "cancel",
        "misfire_grace_seconds": 300,
        "max_retries": 2,
        "timeout_seconds": 1200,
        "paused": True,
        "trigger_payload": {"command": "--all 'two words'", "image": "report:2"},
    }
    assert expected == {name: schedule[name] for name in expected}
    lost = [(notice.line, notice.message.partition(" has no")[0]) for notice in result.notices]
    assert [
        (7, "`annotations`"),
        (14, "`successfulJobsHistoryLimit`"),
        (15, "`failedJobsHistoryLimit`"),
        (20, "`ttlSecondsAfterFinished`"),
        (21, "`parallelism`"),
        (22, "`completions`"),
    ] == lost[:6]
    assert (26, "only the first container is written to trigger_payload, not sidecar, prepare.") == lost[-1]
    assert (True, 8) == (result.is_complete, len(lost))


def test_labels_that_are_none_are_left_out() -> None:
    """The schedule is converted without them."""
    result = converted(FULL.replace("{team: sales}", '{team: "two words"}'))
    assert "labels" not in schedules(result)[0]
    assert (6, True) == (result.notices[0].line, result.notices[0].message.startswith("the labels are left out"))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"schedule": "@every 5m"}, {"every": "5m"}),
        ({"schedule": "@hourly", "timeZone": "Etc/UTC"}, {"cron": "@hourly", "timezone": "Etc/UTC"}),
        ({"schedule": "CRON_TZ=Asia/Tokyo 30 04 * * *"}, {"cron": "30 04 * * *", "timezone": "Asia/Tokyo"}),
        ({"schedule": "TZ=Asia/Tokyo @daily"}, {"cron": "@daily", "timezone": "Asia/Tokyo"}),
        ({"schedule": "0 6 * * ?", "concurrencyPolicy": "Forbid"}, {"cron": "0 6 * * ?", "if_running": "skip"}),
        ({"schedule": "0 6 * * 1", "suspend": False}, {"cron": "0 6 * * 1"}),
        ({"schedule": "0 0 */2 * 1"}, {"cron": "0 0 1-31/2 * 1"}),
        ({"schedule": "0 6 * * *", "startingDeadlineSeconds": 0}, {"misfire_grace_seconds": 0}),
    ],
)
def test_times_and_policies(spec: dict[str, Any], expected: dict[str, Any]) -> None:
    """A timezone before the schedule is one, too."""
    (schedule,) = schedules(converted(changed(**spec)))
    assert expected.items() <= schedule.items()
    assert "paused" not in schedule


def test_a_timezone_of_the_cluster_is_for_those_without() -> None:
    """And for times that depend on one."""
    zones = [schedule.get("timezone") for schedule in schedules(converted(f"{HELLO}---\n{FULL}", "Asia/Tokyo"))]
    assert ["Asia/Tokyo", "Europe/Berlin"] == zones
    (interval,) = schedules(converted(changed(schedule="@every 5m"), "Asia/Tokyo"))
    assert "timezone" not in interval


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (changed(schedule="0 0 30 2 *"), "No date fits"),
        (changed(schedule="H * * * *"), "Jenkins"),
        (changed(schedule="0 0 12 * * ?"), "Expected five fields"),
        (changed(schedule="@reboot"), "names no time"),
        (changed(schedule=5), "spec.schedule is missing or not text"),
        (changed(suspend=True), "spec.schedule is missing or not text"),
        (changed(schedule="@daily", timeZone="Mars/Olympus"), "no timezone 'Mars/Olympus'"),
        (changed(schedule="TZ=UTC @daily", timeZone="UTC"), "both spec.timeZone and"),
        (changed(schedule="@daily", concurrencyPolicy="Sometimes"), "must be one of Allow, Forbid, Replace"),
        (changed(schedule="@daily", concurrencyPolicy=[]), "must be one of Allow, Forbid, Replace"),
        (changed(schedule="@daily", startingDeadlineSeconds="soon"), "misfire_grace_seconds: Expected an integer"),
        (changed(schedule="@daily", suspend="true"), "paused: Expected true or false"),
        (HELLO.replace("      template:", "      activeDeadlineSeconds: 0\n      template:", 1), "timeout_seconds: "),
        (HELLO.replace("batch/v1", "example.com/v1"), "is not a CronJob"),
        (HELLO.replace("kind: CronJob", "kind: Job"), "Job 'hello' of 'batch/v1' is not a CronJob"),
        (HELLO.replace("name: hello\nspec", "generateName: hello\nspec"), "metadata.name is missing"),
        (HELLO.partition("spec:")[0], "`spec` is missing"),
        ("- a\n- b\n", "not an object of Kubernetes"),
    ],
)
def test_what_cannot_be_converted_is_left_out(text: str, reason: str) -> None:
    """With the reason; the other documents are converted."""
    result = converted(f"{text}---\n{FULL}")
    (left_out,) = [notice for notice in result.notices if notice.left_out]
    assert (1, True) == (left_out.line, reason in left_out.message), left_out
    assert ["shop/report"] == [schedule["name"] for schedule in schedules(result)]


def test_a_list_is_read_item_by_item() -> None:
    """As ``kubectl get cronjobs -o yaml`` writes it, with what the cluster adds."""
    item = "\n".join(f"  {line}" for line in HELLO.splitlines())
    noise = "  status: {lastScheduleTime: '2026-01-01T00:00:00Z'}"
    items = f"-{item[1:]}\n{noise}\n-{item[1:].replace('hello', 'other', 1)}\n- kind: Job\n"
    text = f"apiVersion: v1\nkind: List\nitems:\n{items}"
    result = converted(text)
    assert ["hello", "other"] == [schedule["name"] for schedule in schedules(result)]
    assert [text.count("\n")] == [notice.line for notice in result.notices if notice.left_out]


def test_json_and_empty_fields() -> None:
    """JSON is YAML; a template may leave a field without a value."""
    (document,) = read_documents(changed(schedule="@daily", startingDeadlineSeconds=None, concurrencyPolicy=None))
    (schedule,) = schedules(converted(msgspec.json.encode(document.value).decode()))
    assert ("@daily", "allow", 31_536_000) == tuple(
        schedule[name] for name in ("cron", "if_running", "misfire_grace_seconds")
    )


def test_more_retries_than_allowed_are_cut() -> None:
    """A backoffLimit without end is a way to say for ever."""
    result = converted(HELLO.replace("      template:", "      backoffLimit: 2147483647\n      template:", 1))
    assert 1000 == schedules(result)[0]["max_retries"]
    text = "backoffLimit is larger than what max_retries may be: 1000 is written."
    assert (9, text) in [(notice.line, notice.message) for notice in result.notices]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("0 0 */2 * 1", "0 0 1-31/2 * 1"),
        ("0 0 1 * */2", "0 0 1 * 0-6/2"),
        ("0 0 */2 * */3", "0 0 1-31/2 * 0-6/3"),
        ("0 0 */10,5 * 1", "0 0 1-31/10,5 * 1"),
        ("*/5 */2 */2 * *", "*/5 */2 */2 * *"),
        ("0 0 * * */2", "0 0 * * */2"),
        ("0 0 */1 * 1", "0 0 */1 * 1"),
        ("0 0 ? * 1", "0 0 ? * 1"),
        ("@daily", "@daily"),
    ],
)
def test_steps_of_days_are_alternatives_as_in_kubernetes(schedule: str, expected: str) -> None:
    """There, days match if one of the two fields does, unless one is a plain star."""
    assert expected == with_stepped_days(schedule)


@pytest.mark.parametrize(
    "text",
    [
        "a: [\n",
        BOMB,
        "[" * 5000,
        "a: \0",
    ],
)
def test_text_that_is_no_yaml_is_refused_as_a_whole(text: str) -> None:
    """Bombs included."""
    with pytest.raises(YamlProblemError):
        converted(text)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 2**40) | st.sampled_from(["@daily", "* * * * *", "Forbid", "x", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "spec", "template", "containers", "image", "command"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            ["schedule", "timeZone", "concurrencyPolicy", "startingDeadlineSeconds", "suspend", "jobTemplate"], values
        ),
    ),
    values,
    values,
)
@examples(200)
def test_no_manifest_is_too_odd(spec: Any, job_spec: Any, pod: Any) -> None:
    """Every object is converted or named, and what is written can be applied."""
    spec.setdefault("schedule", "@daily")
    spec.setdefault(
        "jobTemplate", {"spec": job_spec if not isinstance(job_spec, dict) else {**job_spec, "template": {"spec": pod}}}
    )
    manifest = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "x"}, "spec": spec}
    result = converted(write_documents([manifest]))
    assert (result.document is None) is any(notice.left_out for notice in result.notices)
    if result.document is not None:
        assert () == read_file(Source("out.yaml", write_documents([result.document]).encode()), CATALOG).problems
