"""What the children of ``carillon up`` are given, and when they are started again."""

import io
from pathlib import Path
from signal import SIGKILL

import pytest
from rich.console import Console

from app.config import load_settings
from app.embedded import EmbeddedPostgres, EmbeddedValkey
from app.embedded.child_process import DRAIN_STEPS, Output, RestartPolicy, StopStep, describe_exit
from app.embedded.stack import LOOPBACK, ChildEnv, child_environment


def _environment(environ: dict[str, str], **chosen: object) -> dict[str, str]:
    surroundings = ChildEnv(**{"port": 8000, "admin_token": "secret", **chosen})  # type: ignore[arg-type]
    return child_environment(load_settings(environ), environ, surroundings)


def test_children_get_what_a_machine_of_ones_own_needs() -> None:
    """Loopback is allowed, nothing is limited, a stop is quick, calls can carry tokens, everything else comes along."""
    given = _environment({"PATH": "/bin"}, database_url="postgresql+asyncpg://x", redis_url="unix:///y")
    expected = {
        "PATH": "/bin",
        "PYTHONUNBUFFERED": "1",
        "CARILLON_HOST": "127.0.0.1",
        "CARILLON_PORT": "8000",
        "CARILLON_ADMIN_TOKEN": "secret",
        "CARILLON_DATABASE_URL": "postgresql+asyncpg://x",
        "CARILLON_REDIS_URL": "unix:///y",
        "CARILLON_HTTP_ALLOW": LOOPBACK,
        "CARILLON_LOG_FORMAT": "console",
        "CARILLON_RATE_LIMIT_PER_MINUTE": "0",
        "CARILLON_DRAIN_SECONDS": "3",
        "CARILLON_PUBLIC_URL": "http://127.0.0.1:8000",
    }
    assert expected == given


@pytest.mark.parametrize(
    ("name", "set_to", "expected"),
    [
        ("CARILLON_HTTP_ALLOW", "10.0.0.0/8, api.internal", f"10.0.0.0/8,api.internal,{LOOPBACK}"),
        ("CARILLON_RATE_LIMIT_PER_MINUTE", "60", "60"),
        ("CARILLON_RATE_LIMIT_PER_MINUTE", " ", "0"),
        ("CARILLON_DRAIN_SECONDS", "1", "1"),
        ("CARILLON_LOG_FORMAT", "json", "json"),
        ("CARILLON_LOG_FORMAT", "auto", "console"),
        ("CARILLON_HOST", "0.0.0.0", "0.0.0.0"),
        ("CARILLON_REDIS_URL", "redis://elsewhere", "redis://elsewhere"),
        ("CARILLON_SIGNING_SECRET", "whsec_x", "whsec_x"),
        ("CARILLON_PUBLIC_URL", "https://carillon.example", "https://carillon.example"),
    ],
)
def test_what_the_operator_set_stays(name: str, set_to: str, expected: str) -> None:
    """A setting is passed on; a blank one is no setting."""
    assert expected == _environment({name: set_to})[name]


def test_a_secret_of_a_file_is_given_once(tmp_path: Path) -> None:
    """What ``up`` has read and hands on replaces the variable of the file; other files are left to the children."""
    token, secret = tmp_path / "token", tmp_path / "signing"
    token.write_text("secret")
    secret.write_text("whsec_x")
    files = {"CARILLON_ADMIN_TOKEN_FILE": str(token), "CARILLON_SIGNING_SECRET_FILE": str(secret)}
    given = _environment(files)
    assert "CARILLON_ADMIN_TOKEN_FILE" not in given
    settings = load_settings(given)
    assert ("secret", "whsec_x") == (settings.admin_token, settings.signing_secret)


def test_children_keep_their_colours_on_a_terminal() -> None:
    """They write to a pipe, and a person reads it."""
    assert "1" == _environment({}, is_terminal=True)["FORCE_COLOR"]


def test_pauses_grow_until_a_child_has_settled() -> None:
    """Half a second, doubled up to ten; after a life of half a minute the pauses begin anew."""
    policy, pause, pauses = RestartPolicy(), 0.0, []
    for lived in (1, 1, 1, 1, 1, 1, 30, 29.9):
        pause = policy.pause_after(pause, lived)
        pauses.append(pause)
    assert [0.5, 1, 2, 4, 8, 10, 0.5, 1] == pauses


@pytest.mark.parametrize(("code", "words"), [(-9, "signal 9"), (0, "code 0"), (3, "code 3")])
def test_an_end_in_words(code: int, words: str) -> None:
    """A signal is told from a code."""
    assert f"exited with {words}" == describe_exit(code)


def test_the_longest_stop_fits_into_the_promise() -> None:
    """Even if the worker and then Postgres ignore every signal but the last, all ends within ten seconds."""
    servers = max(_patience(EmbeddedPostgres.stop_steps), _patience(EmbeddedValkey.stop_steps))
    assert _patience(DRAIN_STEPS) + servers < 10


def _patience(steps: tuple[StopStep, ...]) -> float:
    """How long it takes until SIGKILL, which nothing ignores."""
    assert SIGKILL == steps[-1].signal
    return sum(step.seconds for step in steps[:-1])


def test_lines_stay_whole_and_plain_for_a_pipe() -> None:
    """A long line is not wrapped, brackets are no markup, and colours are left out where nobody sees them."""
    written = io.StringIO()
    output = Output(Console(file=written))
    output.relay("api", "\x1b[31m[red]\x1b[0m " + "x" * 300)
    output.print_line("Carillon is ready at http://127.0.0.1:8000", "bold green")
    expected = ["api      | [red] " + "x" * 300, "Carillon is ready at http://127.0.0.1:8000"]
    assert expected == written.getvalue().splitlines()
