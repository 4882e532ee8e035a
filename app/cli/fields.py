"""The fields of an object from options and files: ``--set field=JSON``, ``-f FILE``, and an editor."""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
from cyclopts import Parameter

from app.client.connection import say
from app.client.errors import ClientError, Exit

STDIN = Path("-")
MOST_BYTES = 8 * 1024 * 1024

Sets = Annotated[
    list[str] | None,
    Parameter(name="--set", negative=(), help="A field and its value as JSON, such as max_retries=5; may be repeated."),
]
File = Annotated[
    Path | None,
    Parameter(name=("--file", "-f"), allow_leading_hyphen=True, help="A YAML or JSON file with fields; - is stdin."),
]


def assignments(texts: Sequence[str] | None) -> dict[str, Any]:
    """Return the fields of `--set`; a value that is not JSON is a text."""
    return dict(_assignment(text) for text in texts or ())


def _assignment(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name.strip() or not equals:
        raise ClientError(f"--set {text}: expected field=value.", Exit.BAD_INPUT)
    try:
        return name.strip(), msgspec.json.decode(value)
    except msgspec.DecodeError:
        return name.strip(), value


def labels_of(texts: Sequence[str] | None) -> dict[str, str]:
    """Return labels that are given as key=value."""
    pairs = [text.partition("=") for text in texts or ()]
    wrong = [name for name, equals, _ in pairs if not name or not equals]
    if wrong:
        raise ClientError(f"The label '{wrong[0]}' has no value.", Exit.BAD_INPUT, hint="Expected key=value.")
    return {name: value for name, _, value in pairs}


def read_text(path: Path) -> str:
    """Return the text of a file, or of stdin."""
    try:
        if path == STDIN:
            content = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with path.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ClientError(f"{path} is larger than {MOST_BYTES} bytes.", Exit.BAD_INPUT)
        return content.decode()
    except OSError as error:
        raise ClientError(f"{path}: {error.strerror}", Exit.BAD_INPUT) from None
    except UnicodeDecodeError:
        raise ClientError(f"{path} is not UTF-8 text.", Exit.BAD_INPUT) from None


def read_fields(path: Path | None) -> dict[str, Any]:
    """Return the fields that a file has, or none without a file."""
    return {} if path is None else parse_fields(read_text(path), str(path))


def parse_fields(text: str, name: str) -> dict[str, Any]:
    """Return the mapping that a text in YAML or JSON is; dates stay text."""
    import yaml

    try:
        value = yaml.load(text, Loader=_loader())  # noqa: S506 - a loader of plain values
    except yaml.YAMLError as error:
        raise ClientError(f"{name} is not valid YAML: {' '.join(str(error).split())}", Exit.BAD_INPUT) from None
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ClientError(f"{name}: expected a mapping of fields to values.", Exit.BAD_INPUT)
    return value


def _loader() -> Any:
    """Return a YAML loader that leaves times as text: the API reads them."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
            first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    return Loader


def edited(fields: Mapping[str, Any], heading: str) -> tuple[dict[str, Any], Path]:
    """Open fields as YAML in the user's editor; return the fields that differ afterwards, and the file.

    The file is kept until ``keeping`` deletes it, so that a refused edit is not lost.
    """
    from app.cli.output import yaml_text

    handle, name = tempfile.mkstemp(prefix="carillon-", suffix=".yaml")
    path = Path(name)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write("".join(f"# {line}\n" for line in heading.splitlines()) + yaml_text(dict(fields)))
    try:
        _run_editor(path)
        after = parse_fields(read_text(path), "The edited text")
    except KeyboardInterrupt:
        say(f"\nNothing was changed. Your text is kept in {path}.")
        raise
    except ClientError as error:
        raise (kept(error, path) if path.exists() else error) from None
    removed = {name: None for name in fields if name not in after and fields[name] is not None}
    return {**{name: value for name, value in after.items() if fields.get(name) != value}, **removed}, path


def _run_editor(path: Path) -> None:
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        code = subprocess.run([*shlex.split(command), str(path)], check=False).returncode  # noqa: S603 - the user's editor
    except (OSError, ValueError) as error:
        path.unlink(missing_ok=True)
        raise ClientError(
            f"The editor `{command}` cannot be started: {error}", Exit.BAD_INPUT, hint="Set EDITOR."
        ) from None
    if code != 0:
        path.unlink(missing_ok=True)
        raise ClientError(f"The editor exits with {code}; nothing was changed.", Exit.FAILED)


@contextmanager
def keeping(draft: Path | None) -> Iterator[None]:
    """Delete an edited text when its change is stored; say where it is if the change is refused or interrupted."""
    try:
        yield
    except ClientError as error:
        raise (kept(error, draft) if draft else error) from None
    except KeyboardInterrupt:
        if draft:
            say(f"\nYour text is kept in {draft}; -f takes it.")
        raise
    if draft:
        draft.unlink(missing_ok=True)


def moment_of(text: str) -> str:
    """Return a time as the API takes it: a duration counts from now, anything else is for the API to check."""
    from app import clock
    from app.domain.specs import parse_duration
    from app.domain.trigger_event import rfc3339

    try:
        return rfc3339(clock.now() + parse_duration(text))
    except ValueError:
        return text


def kept(error: ClientError, path: Path) -> ClientError:
    """Return an error that says where the refused edit is."""
    hint = f"{error.hint} Your text is kept in {path}; -f takes it.".strip()
    return ClientError(error.message, error.code, lines=error.lines, hint=hint)
