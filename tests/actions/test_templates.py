"""Templates: what they can say, and that nothing makes them run away."""

import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.actions.secrets import HIDDEN, RevealedSecrets, SecretStore
from app.actions.templates import LONGEST_TEXT, TemplateProblemError, check, filled_in, templates_in

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


def test_secrets_come_from_the_environment_and_from_files(tmp_path: Any) -> None:
    """The environment first; a name cannot lead out of the folder."""
    (tmp_path / "FROM_FILE").write_text("in the file\n")
    (tmp_path / "inner").mkdir()
    store = SecretStore({"CARILLON_SECRET_TOKEN": "s3cret"}, str(tmp_path / "inner" / ".."))
    assert ["s3cret", "in the file"] == [store.get("TOKEN"), store.get("FROM_FILE")]
    for name in ("../FROM_FILE", "inner/../FROM_FILE", "", ".", "..", "missing", "inner", "a\x00b"):
        assert store.get(name) is None


def test_what_was_shown_is_hidden_again() -> None:
    """In keys and values, longer secrets before those within them; what was never used is not looked for."""
    secrets = RevealedSecrets(SecretStore({"CARILLON_SECRET_A": "abc", "CARILLON_SECRET_B": "abcdef"}))
    assert "xabcx" == secrets.hidden("xabcx")
    assert "Bearer abcdef" == filled_in("Bearer {{ secret.B }}", {"secret": secrets})
    assert "abc" == filled_in("{{ secret.A }}", {"secret": secrets})
    assert {f"k{HIDDEN}": [HIDDEN, 1, None]} == secrets.hidden({"kabc": ["abcdef", 1, None]})
    with pytest.raises(TemplateProblemError):
        filled_in("{{ secret.C }}", {"secret": secrets})
    assert ("{}", 0) == (filled_in("{{ secret | tojson }}x", {"secret": {}})[:-1], len(secrets))
