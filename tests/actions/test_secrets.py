"""Secrets: where they come from, and that no spelling of one is left in what is kept."""

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.actions.secrets import HIDDEN, Redactor, RunSecrets, SecretStore
from app.actions.template_rules import TemplateProblemError
from app.domain.secrets import EnvironmentSecret, Secret
from tests.support.hypothesis_examples import examples
from tests.support.secret_spellings import spellings

SECRETS = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=8, max_size=60),
    st.text("abcXYZ019+/=%&<>\"'\\ -_.:@", min_size=8, max_size=60),
    st.text("öäß日本語😀é", min_size=8, max_size=30),
).filter(lambda secret: len(secret.strip()) >= 8)


@examples(300)
@given(SECRETS, st.sampled_from(sorted(spellings("x"))), st.sampled_from(["", "a ", "{'k': '"]))
def test_no_spelling_of_a_secret_is_left(secret: str, spelling: str, before: str) -> None:
    """What stands around it stays."""
    if spelling.startswith("html, ") and not secret.isprintable():
        # HTML has no numbers for most control characters.
        return
    written = spellings(secret)[spelling]
    hidden = Redactor([secret]).hidden(f"{before}{written}")
    assert HIDDEN in hidden, (spelling, hidden)
    assert hidden.startswith(before)
    assert secret.strip() not in hidden.replace(HIDDEN, "")


def test_hidden_in_keys_numbers_and_values() -> None:
    """Longer secrets before those within them; what is no secret stays as it is."""
    hider = Redactor(["abc", "abcdef", "1234567"])
    value = {"kabc": ["ABCDEF", 1, None, True, 1234567, 12345.0, {"x": "%61bc!"}]}
    assert {f"k{HIDDEN}": [HIDDEN, 1, None, True, HIDDEN, 12345.0, {"x": f"{HIDDEN}!"}]} == hider.hidden(value)
    assert "nothing %41 here\\n&amp;" == hider.hidden("nothing %41 here\\n&amp;")


def test_what_is_too_deep_to_look_through_is_left_out() -> None:
    """A stack that runs out must not lose the result of a run."""
    deep: Any = "abcdef"
    for _ in range(5000):
        deep = [deep]
    assert HIDDEN == Redactor(["abcdef"]).hidden(deep)


def test_secrets_come_from_the_environment_and_from_files(tmp_path: Path) -> None:
    """The environment first; a name cannot lead out of the folder; hosts are named beside them."""
    (tmp_path / "FROM_FILE").write_text("in the file\n")
    (tmp_path / "FROM_FILE__HOSTS").write_text("files.example.com\n")
    (tmp_path / "inner").mkdir()
    environ = {"CARILLON_SECRET_TOKEN": "s3cret", "CARILLON_SECRET_TOKEN__HOSTS": "a.example.com, *.b.example.com:8443"}
    store = SecretStore(environ, str(tmp_path / "inner" / ".."))
    assert EnvironmentSecret("s3cret", ("a.example.com", "*.b.example.com:8443")) == store.find("TOKEN")
    assert EnvironmentSecret("in the file", ("files.example.com",)) == store.find("FROM_FILE")
    assert EnvironmentSecret("x") == SecretStore({"CARILLON_SECRET_X": "x"}).find("X")
    for name in ("../FROM_FILE", "inner/../FROM_FILE", "", ".", "..", "missing", "inner", "a\x00b", "TOKEN__HOSTS"):
        assert store.find(name) is None


async def test_a_run_hides_what_it_was_shown_and_nothing_else() -> None:
    """One that is not there is said by name."""
    known = {name: Secret(name=name, value=f"value-{name}", host_lists=(), owner_id=None) for name in ("A", "B")}

    async def find(names: frozenset[str]) -> dict[str, Secret]:
        return {name: secret for name, secret in known.items() if name in names}

    secrets = RunSecrets(find, "mia", lambda: frozenset({"A", "B", "C"}))
    assert "value-A" == secrets.hidden("value-A")
    assert ["A"] == [one.name for one in await secrets.show(frozenset({"A"}))]
    assert [HIDDEN, "value-B"] == secrets.hidden(["value-A", "value-B"])
    with pytest.raises(TemplateProblemError, match="There is no secret 'C' for the user 'mia'"):
        await secrets.show(frozenset({"A", "C"}))
    assert ["A", "B"] == sorted(one.name for one in await secrets.foresee())
    assert [HIDDEN, HIDDEN] == secrets.hidden(["value-A", "value-B"])


@pytest.mark.parametrize("before", ["", "u", "us", "user:"])
@pytest.mark.parametrize("after", ["", "x", "xy"])
def test_base64_leaves_no_bits_of_the_first_and_last_bytes(before: str, after: str) -> None:
    """The characters beside the core hold some of them."""
    encoded = b64encode(f"{before}hunter2-hunter2{after}".encode()).decode()
    left, _, right = Redactor(["hunter2-hunter2"]).hidden(encoded).partition(HIDDEN)
    assert len(left) * 6 <= len(before) * 8
    assert len(right.rstrip("=")) * 6 <= len(after) * 8
    assert HIDDEN not in right
