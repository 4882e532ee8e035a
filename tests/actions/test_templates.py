"""Templates: what they can say, and that nothing makes them run away.

Covers app.actions.template_rules.
"""

import time
import tracemalloc
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.actions.template_rules import KNOWN_NAMES, TemplateProblemError
from app.actions.templates import LONGEST_TEXT, check, filled_in, secrets_in, templates_in
from app.domain.executions import Execution, Trigger
from app.domain.trigger_event import Event, ScheduleEvent, template_variables
from tests.support.domain_builders import JOB, T0

RUN = Execution(
    id=JOB,
    scheduled_job_id=JOB,
    workflow_id=1,
    user_profile_id=1,
    job_name="nightly",
    trigger=Trigger.SCHEDULE,
    trigger_node_id=None,
    repeat_number=0,
    retry_attempt=0,
    scheduled_for=T0,
    fired_at=T0,
    timeout_seconds=600,
    payload={"x": 1},
    token=1,
)

VARIABLES: dict[str, Any] = {
    "trigger": {"payload": {"x": 1, "items": [10, 20], "name": "Ada", "none": None}, "html": "<b>"},
    "nodes": {"fetch": {"output": {"body": {"id": 7, "tags": ["a"]}}}},
    "schedule": {"name": "nightly"},
    "slot": "2026-03-01T00:00:00Z",
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ trigger.payload.x }}", 1),
        ("{{ nodes.fetch.output.body.id }}", 7),
        ("{{ nodes.fetch.output.body }}", {"id": 7, "tags": ["a"]}),
        ("{{ trigger.payload.items }}", [10, 20]),
        ("{{ trigger.payload.items[1] }}", 20),
        ("{{ trigger.payload['name'] | upper }}", "ADA"),
        ("{{ trigger.payload.none }}", None),
        ("{{ trigger.payload.missing | default('d') }}", "d"),
        ("{{ 'yes' if trigger.payload.x == 1 else 'no' }}", "yes"),
        ("run {{ schedule.name }} of {{ slot }}", "run nightly of 2026-03-01T00:00:00Z"),
        ("{{ trigger.payload | tojson }}!", '{"items":[10,20],"name":"Ada","none":null,"x":1}!'),
        ("{{ trigger.html | tojson }}", '"<b>"'),
        ("no braces", "no braces"),
        ("{% for %} and {# #} without braces", "{% for %} and {# #} without braces"),
    ],
)
def test_what_a_template_says(template: str, expected: Any) -> None:
    """One expression keeps the type of its value; among words it is text."""
    assert expected == filled_in(template, VARIABLES)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ x.y }}", "The template uses 'x', which is not known. Known: trigger, schedule, slot, execution, nodes, "),
        ("a {{ trigger.payload.missing.more }}", "There is no 'missing'."),
        ("{{ trigger.payload.items[9] }}", "The list has no item 9."),
        ("{{ slot.year }}", "'year' is looked for in a value that is neither an object nor a list."),
        ("{{ trigger.payload.missing == 1 }}", "There is no 'missing'."),
        ("{{ trigger.payload.missing | upper }}", "There is no 'missing'."),
    ],
)
def test_what_is_missing_is_named(template: str, reason: str) -> None:
    """In words that say nothing of the library."""
    with pytest.raises(TemplateProblemError) as caught:
        filled_in(template, VARIABLES)
    assert str(caught.value).startswith(f"'{template}' cannot be filled in: {reason}")
    assert "jinja" not in str(caught.value)


def test_the_known_names_are_those_of_runs() -> None:
    """What is written is checked against what runs will have."""
    assert {*KNOWN_NAMES} == {*template_variables(RUN, Event(RUN)), "nodes", "secret"}


def test_the_event_is_as_it_is_described() -> None:
    """The outputs of a trigger are what templates find below ``trigger``."""
    found = msgspec.convert(dict(Event(RUN)), ScheduleEvent, strict=True)
    assert set(Event(RUN)) == set(ScheduleEvent.__struct_fields__)
    assert (RUN.scheduled_job_id, RUN.scheduled_for) == (found.scheduled_job_id, found.scheduled_for)


def test_templates_are_filled_in_wherever_they_stand() -> None:
    """In values of objects and lists, never in keys; all else stays as it is."""
    config = {"a": ["{{ slot }}", 1, None], "b": {"{{ slot }}": "{{ trigger.payload.x }}"}, "c": True}
    expected = {"a": [VARIABLES["slot"], 1, None], "b": {"{{ slot }}": 1}, "c": True}
    assert expected == filled_in(config, VARIABLES)
    assert ["a[0]", "b.{{ slot }}"] == [place for place, _ in templates_in(config)]


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ trigger.__class__ }}",
        "{{ trigger.payload.name.upper }}",
        "{{ trigger.payload.items.append }}",
        "{{ nobody }}",
        "{{ trigger.payload.missing }}",
        "{{ trigger.payload.missing.deeper }}",
        "{{ nodes.later.output }}",
    ],
)
def test_what_is_not_there_is_a_clear_error(template: str) -> None:
    """No value has attributes, only members."""
    with pytest.raises(TemplateProblemError) as refused:
        filled_in(template, VARIABLES)
    assert "cannot be filled in" in str(refused.value)


@pytest.mark.parametrize(
    "template",
    [
        "{{ range(10 ** 9) }}",
        "{{ 'a' * 1000000000 }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ [1] * 1000000000 }}",
        "{{ cycler(1) }}",
        "{{ trigger.payload.items.__len__() }}",
        "{{ ''.join(['a']) }}",
        "{{ trigger | attr('__class__') }}",
        "{{ trigger | map('x') }}",
        "{{ x",
        "{{ }}",
        "{{ a }}{% for i in range(9) %}{% endfor %}",
        "{{ a }}{% set b = 1 %}",
        "{{ a }}{% include 'x' %}",
        "{{ slot" + " | tojson" * 4 + " }}",
        "{{ " + "a." * 300 + "a }}",
        "{{ slot }}" * 300,
        "{{ " + "(" * 5000 + "a" + ")" * 5000 + " }}",
        "{{ a }}" + "x" * 30_000,
    ],
)
def test_what_could_run_away_is_refused_before_it_runs(template: str) -> None:
    """Statements, calls, arithmetic, other filters, and what is too long."""
    with pytest.raises(TemplateProblemError):
        check(template)


def test_a_great_value_does_not_grow() -> None:
    """A megabyte is refused at once, not copied a hundred times."""
    variables = {"big": "x" * 1_000_000, "half": "y" * (LONGEST_TEXT // 2 + 1)}
    for template in ("{{ big }}", "a {{ big }}", "{{ half }}{{ half }}" * 40):
        started = time.process_time()
        with pytest.raises(TemplateProblemError) as refused:
            filled_in(template, variables)
        assert f"longer than {LONGEST_TEXT}" in str(refused.value)
        assert time.process_time() - started < 1


@given(st.text(max_size=60), st.text(max_size=60))
def test_whatever_is_written_there_is_an_answer(before: str, inside: str) -> None:
    """A value, or a clear error; never anything else."""
    with suppress(TemplateProblemError):
        filled_in(f"{before}{{{{ {inside} }}}}", VARIABLES)


def test_deep_chains_and_huge_numbers_are_refused_in_words() -> None:
    """Neither the stack nor the conversion of numbers gives way: the text says what is wrong."""
    for template in (
        "{{ a" + ".b" * 9000 + " }}",
        "{{ a" + ".b" * 150 + " }}",
        "{{ a[" + "9" * 19_000 + "] }}",
        "{{ a[" + "9" * 4000 + "] }}",
        "{{ 1e999999 }}",
        "{{ " + "not " * 4000 + "a }}",
        "{{ " + "a and " * 150 + "a }}",
        "{{ self }}",
    ):
        with pytest.raises(TemplateProblemError) as refused:
            check(template)
        assert len(str(refused.value)) < 500, template[:30]


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("{{ secret.A }}", {"A"}),
        ("Bearer {{ secret['B'] }}{{secret.A}}", {"A", "B"}),
        ("{{ trigger.payload.secret }} secret", set()),
        ("{{ trigger['secret'].A | upper }}", set()),
    ],
)
def test_the_secrets_that_a_template_names(template: str, names: set[str]) -> None:
    """Each is known before anything is filled in."""
    assert names == secrets_in(template)


@pytest.mark.parametrize(
    "expression",
    [
        *("secret", "secret | tojson", "secret.A | upper", "secret.A | length", "secret.A.b", "secret.A[0]"),
        *("'a' in secret.A", "secret.A == 'x'", "'x' if secret.A else 'y'", "secret.A if 1 else 2", "not secret.A"),
        *("secret.A and 1", "secret.A or 1", "secret[trigger.payload.name]", "nodes[secret.A]", "secret[0]"),
        *("'x' | default(secret.A)", "trigger.payload.missing | default(secret.A)", "secret['A'] | string"),
    ],
)
def test_a_secret_is_sent_as_it_is_or_not_at_all(expression: str) -> None:
    """No filter, comparison or condition can show a part of it, or whether a guess is right."""
    with pytest.raises(TemplateProblemError) as refused:
        secrets_in(f"{{{{ {expression} }}}}")
    assert "as a whole" in str(refused.value)


def test_a_configuration_has_a_budget_that_references_use_up() -> None:
    """Five thousand references to one text of 200 kB are counted, not copied: memory stays flat."""
    variables = {"s": "x" * 200_000, "o": {"list": [["y" * 100] * 100]}}
    tracemalloc.start()
    try:
        for template in ("{{ s }}", "{{ o }}", "a {{ s }}", "{{ o.list | tojson }}", "{{ o.list }}"):
            with pytest.raises(TemplateProblemError) as refused:
                filled_in({"json": [template] * 5000}, variables)
            assert "larger than 1048576 bytes" in str(refused.value)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000
    assert 1_000_000 > len(msgspec.json.encode(filled_in({"json": ["{{ s }}"] * 4}, variables)))


def test_a_configuration_has_a_budget_of_templates() -> None:
    """However small each of them is."""
    assert [1] * 20_000 == filled_in(["{{ a }}"] * 20_000, {"a": 1})
    for config in (["{{ a }}"] * 20_001, [f"{{{{ a }}}}{number}" for number in range(501)]):
        with pytest.raises(TemplateProblemError) as refused:
            filled_in(config, {"a": 1})
        assert "20000 templates are allowed, 500 different ones" in str(refused.value)


def test_a_value_that_is_too_deep_is_refused() -> None:
    """Whoever encodes it would run out of stack."""
    deep: Any = 1
    for _ in range(3000):
        deep = [deep]
    with pytest.raises(TemplateProblemError) as refused:
        filled_in("{{ deep }}", {"deep": deep})
    assert "nested more than 100 levels" in str(refused.value)


@pytest.mark.parametrize("name", ["\uff53ecret", "\u017fecret"])
def test_a_look_alike_of_a_name_is_refused(name: str) -> None:
    """Python takes it for the same name: it would show parts of a secret through filters and comparisons."""
    with pytest.raises(TemplateProblemError, match="plain letters"):
        check(f"{{{{ {name}.A | upper }}}}-{{{{ secret.A }}}}")
