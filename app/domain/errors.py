"""Errors as types, each with a stable code. They know nothing of HTTP; ``app.api.problems`` maps them to responses."""

import re
from typing import ClassVar

import msgspec


class FieldError(msgspec.Struct, frozen=True):
    """One thing that is wrong with one field."""

    field: str
    message: str


class CarillonError(Exception):
    """Something was refused."""

    code: ClassVar[str] = "error"

    def __init__(self, detail: str = "") -> None:
        """Say what was refused; without words, the docstring of the type speaks."""
        self.detail = detail or (type(self).__doc__ or "").strip()
        super().__init__(self.detail)


class NotFoundError(CarillonError):
    """There is no such thing, or it is not yours."""

    code = "not_found"


class UnauthenticatedError(CarillonError):
    """A valid bearer token is needed."""

    code = "unauthenticated"


class ForbiddenError(CarillonError):
    """This needs the role admin."""

    code = "forbidden"


class WrongStateError(CarillonError):
    """The state that it is in does not allow this."""

    code = "wrong_state"


class ConflictError(CarillonError):
    """Another change stands in the way."""

    code = "conflict"


class ForeignWorkflowError(CarillonError):
    """The workflow belongs to another user, who can change what it does."""

    code = "foreign_workflow"

    def __init__(self, workflow_owner: int, *errors: FieldError) -> None:
        """Name the owner, so that the request can be repeated with it; in a batch, each item that is concerned."""
        super().__init__(
            f"The workflow belongs to the user {workflow_owner}, who can change what it does. "
            f"To schedule it, repeat the request with `workflow_owner`: {workflow_owner}."
        )
        self.workflow_owner = workflow_owner
        self.errors = errors


class QuotaExceededError(CarillonError):
    """The user has as many of these as the quota allows."""

    code = "quota_exceeded"

    def __init__(self, detail: str, limit: int, used: int) -> None:
        """Say how many are allowed, and how many there are."""
        super().__init__(detail)
        self.limit = limit
        self.used = used


class InvalidError(CarillonError):
    """Some fields are not valid."""

    code = "validation"

    def __init__(self, *errors: FieldError) -> None:
        """Name every field that is wrong."""
        super().__init__()
        self.errors = errors

    def __str__(self) -> str:
        """All of it in one line."""
        return " ".join((self.detail, *(f"{error.field}: {error.message}" for error in self.errors)))


class NoTriggerError(CarillonError):
    """No trigger node of the workflow matches the event."""

    code = "no_trigger"


class UnavailableError(CarillonError):
    """The database cannot be reached right now."""

    code = "database_unavailable"


class DatabaseRefusesError(UnavailableError):
    """The database refuses the user or the password."""


class NoSuchDatabaseError(UnavailableError):
    """The server has no database of that name."""


class ReadOnlyDatabaseError(UnavailableError):
    """The database takes no writes: it is a standby, or it was made read-only."""


class DiskFullError(UnavailableError):
    """The database has no space left to write to."""


class NotMigratedError(UnavailableError):
    """The database is not migrated yet."""

    def __init__(self, found: str, wanted: str) -> None:
        """Name the schema that is there, and the one that is needed."""
        super().__init__(f"The database is not migrated yet: its schema is {found}, {wanted} is needed.")


class QueryTimeoutError(UnavailableError):
    """The query took too long. Narrow it down by filters or by `limit`, or try again later."""

    code = "query_timeout"


class ShareUsedUpError(CarillonError):
    """Other requests of this user are using all the database connections that one user may use."""

    code = "too_many_at_once"


class InDoubtError(UnavailableError):
    """The answer to a commit was lost: it may have been written, or not."""

    code = "in_doubt"


class LeaseExpiredError(CarillonError):
    """The worker's lease has run out, so that nothing may be claimed under it."""

    code = "lease_expired"


# A key that is wrong is said as "`key` in" the object that has it.
_PATH = re.compile(r" - at (?:`key` in )?`\$\.?(.*?)`$", re.DOTALL)
_NAMED = re.compile(r"(?:missing required|contains unknown) field `(.*)`", re.DOTALL)


def field_error(error: msgspec.ValidationError, within: str = "") -> FieldError:
    """The field, below the place ``within``, and what is wrong with it."""
    text = str(error)
    found = _PATH.search(text)
    words = text[: found.start()] if found else text
    named = _NAMED.search(words)
    steps = (within, found.group(1) if found else "", named.group(1) if named else "")
    path = ".".join(step for step in steps if step).replace(".[", "[")
    return FieldError(path, f"{words}.")
