"""What files declare, and what is wrong with them.

Covers app.services.declarations.files.
"""

import pytest

from app.domain.schedules import EDITABLE
from app.services.declarations.files import Source, read_files
from app.services.inputs import DeclaredScheduleInput
from tests.support.declarations import CATALOG

NODES = "nodes: [{id: s, type: trigger_schedule}, {id: w, type: core.noop}]"


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", ["1: The file is empty."]),
        ("# nothing\n---\n", ["1: The file is empty."]),
        ("\n- a\n", ["2: Expected an object, got an array."]),
        ("\nschedules: []\n", ["2: namespace: This field is required."]),
        ("namespace: a b\n", ["1: namespace: Expected 1 to 63 letters"]),
        ("namespace: x\nschedule: []\n", ["2: schedule: There is no field 'schedule'. Did you mean 'schedules'?"]),
        ("namespace: x\nworkflows: {}\n", ["2: workflows: Expected an array or null, got an object."]),
        ("namespace: x\nschedules:\n- nightly\n", ["3: schedules[0]: Expected an object, got a string."]),
        (
            "namespace: x\nschedules:\n- name: a\n  workflow: w\n  every: soon\n- name: b\n  every: 1m\n",
            ["5: schedule 'a': every: Expected a duration", "6: schedule 'b': workflow: This field is required."],
        ),
        (
            "namespace: x\nschedules:\n- name: a\n  workflow: w\n  workflow_id: 5\n",
            ["5: schedule 'a': workflow_id: There is no field 'workflow_id'. Did you mean 'workflow'?"],
        ),
        (
            "namespace: x\nschedules:\n- name: a\n  workflow: w\n  every: 1m\n  paused: yes\n",
            ["6: schedule 'a': paused: Expected true or false, got a string."],
        ),
        (
            "namespace: x\nschedules:\n- name: a\n  workflow: w\n  every: 1m\n  cron: '* * * * *'\n",
            ["6: schedule 'a': cron: Exactly one of"],
        ),
        (
            "namespace: x\nworkflows:\n- name: a\n  nodes: [{id: w, type: core.delay, config: {\n    seconds: x}}]",
            ["5: workflow 'a': nodes[0].config.seconds: Node 'w': Expected"],
        ),
        (
            "namespace: x\nworkflows:\n- name: a\n  nodes: [{id: w, type: nonsense}]\n",
            ["4: workflow 'a': nodes[0].type: There is no action 'nonsense' (node 'w')."],
        ),
        (
            f"namespace: x\nworkflows:\n- name: a\n  {NODES}\n---\nnamespace: x\nworkflows:\n- name: a\n  {NODES}\n",
            ["8: workflow 'a': name: The namespace has one of this name already, at a.yaml:3."],
        ),
        ("namespace: x\nnamespace: y\n", ["2: 'namespace' is given twice, first on line 1."]),
        ("namespace: x\nschedules:\n\t- name: a\n", ["3: This is not YAML"]),
    ],
)
def test_problems_name_file_and_line(text: str, problems: list[str]) -> None:
    """In the words of the API."""
    (file,) = read_files([Source("a.yaml", text.encode())], CATALOG)
    told = [str(problem) for problem in file.problems]
    assert len(problems) == len(told), told
    for expected, problem in zip(problems, told, strict=True):
        assert problem.startswith(f"a.yaml:{expected}"), problem


def test_what_is_not_text_is_named_by_its_line() -> None:
    """A byte order mark is no mistake."""
    files = read_files(
        [Source("a.yaml", b"namespace: x\n# \xff"), Source("b.yaml", b"\xef\xbb\xbfnamespace: x")], CATALOG
    )
    assert [["a.yaml:2: This is not UTF-8."], []] == [[str(one) for one in file.problems] for file in files]


def test_a_file_can_say_all_that_can_be_changed() -> None:
    """A new field of a schedule is one of files too."""
    assert set(EDITABLE) - {"workflow_id"} == set(DeclaredScheduleInput.__struct_fields__) - {"workflow", "paused"}
