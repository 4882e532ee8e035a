"""Exit codes of the command line, and errors that a command prints as one line each."""

from collections.abc import Sequence
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes. Scripts rely on them."""

    DONE = 0
    FAILED = 1
    BAD_INPUT = 2
    NOT_FOUND = 3
    NOT_ALLOWED = 4
    CONFLICT = 5
    RUN_FAILED = 6
    TIMED_OUT = 7
    WOULD_CHANGE = 8
    INTERRUPTED = 130


class ClientError(Exception):
    """An error with its exit code, further lines such as the fields concerned, and what to do next."""

    def __init__(self, message: str, code: Exit = Exit.FAILED, *, lines: Sequence[str] = (), hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.lines = tuple(lines)
        self.hint = hint


class ApiError(ClientError):
    """The server refused a request; ``status`` and ``errors`` (of single fields) are those of its answer."""

    def __init__(self, status: int, problem: dict[str, object], *, hint: str = "") -> None:
        errors = problem.get("errors")
        fields = [one for one in errors if isinstance(one, dict)] if isinstance(errors, list) else []
        lines = [f"{one.get('field') or 'body'}: {one.get('message', '')}" for one in fields]
        detail = str(problem.get("detail") or problem.get("title") or f"The server answers {status}.")
        super().__init__(detail, exit_code_of(status), lines=lines, hint=hint or hint_for(status, problem))
        self.status = status
        self.problem_code = str(problem.get("code", ""))
        self.errors = fields


_CODES = {
    400: Exit.CONFLICT,
    401: Exit.NOT_ALLOWED,
    403: Exit.NOT_ALLOWED,
    404: Exit.NOT_FOUND,
    405: Exit.NOT_FOUND,
    409: Exit.CONFLICT,
    412: Exit.CONFLICT,
    413: Exit.BAD_INPUT,
    422: Exit.BAD_INPUT,
}
_HINTS = {
    401: "Log in with `carillon login URL`, or set CARILLON_TOKEN.",
    403: "`carillon whoami` shows the role and the scopes of your token.",
    412: "The object was changed meanwhile. Read it again and repeat the command.",
    503: "The server cannot reach its database. `carillon doctor` shows more.",
}


def exit_code_of(status: int) -> Exit:
    """Return the exit code for the status of an answer."""
    return _CODES.get(status, Exit.FAILED)


def hint_for(status: int, problem: dict[str, object]) -> str:
    """Return what the user can do about a problem, or nothing."""
    if status == 400 and problem.get("code") != "wrong_state":  # noqa: PLR2004 - the status of two kinds of errors
        return ""
    return _HINTS.get(status, "")
