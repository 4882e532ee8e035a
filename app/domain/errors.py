"""Errors as types, each with a stable code and a text. ``app.api.problems`` maps them to HTTP responses."""

import re
from typing import ClassVar

import msgspec

# The end of msgspec's messages: the path of the value. A wrong key is reported as "`key` in" its object.
_PATH = re.compile(r" - at (?:`key` in )?`\$\.?(.*?)`$", re.DOTALL)
_FIELD_NAME = re.compile(r"(?:missing required|contains unknown) field `(.*)`", re.DOTALL)


class FieldError(msgspec.Struct, frozen=True):
    """A field that is not valid, and what is wrong with it."""

    field: str
    message: str


class CarillonError(Exception):
    """The base of all errors that a caller can be told about."""

    code: ClassVar[str] = "error"
    # What a caller reads if the error is raised without a detail.
    text: ClassVar[str] = "The request was refused."

    def __init__(self, detail: str = "") -> None:
        """Take what is wrong in this case; without it, the text of the type is used."""
        self.detail = detail or self.text
        super().__init__(self.detail)


class NotFoundError(CarillonError):
    """The object does not exist, or belongs to another user."""

    code = "not_found"
    text = "The object does not exist, or it belongs to another user."


class UnauthenticatedError(CarillonError):
    """The request has no valid token."""

    code = "unauthenticated"
    text = "A valid bearer token is needed."


class ForbiddenError(CarillonError):
    """The actor is not an admin."""

    code = "forbidden"
    text = "This needs the role admin."


class WrongStateError(CarillonError):
    """The state of the object does not allow the operation."""

    code = "wrong_state"
    text = "The object is in a state that does not allow this."


class ConflictError(CarillonError):
    """The object was changed by another request at the same time, or a name is taken."""

    code = "conflict"
    text = "The object was changed by another request. Read it again and retry."


class ForeignWorkflowError(CarillonError):
    """The workflow belongs to another user, who can change what it does."""

    code = "foreign_workflow"

    def __init__(self, workflow_owner: int, *errors: FieldError) -> None:
        """Take the owner, to be named in a repeated request, and in a batch the items that are concerned."""
        super().__init__(
            f"The workflow belongs to the user {workflow_owner}, who can change what it does. "
            f"To schedule it, repeat the request with `workflow_owner`: {workflow_owner}."
        )
        self.workflow_owner = workflow_owner
        self.errors = errors


class QuotaExceededError(CarillonError):
    """The user has as many objects of a kind as the quota allows."""

    code = "quota_exceeded"

    def __init__(self, detail: str, limit: int, used: int) -> None:
        """Take what is wrong, how many objects are allowed, and how many there are."""
        super().__init__(detail)
        self.limit = limit
        self.used = used


class InvalidError(CarillonError):
    """Fields of a request are not valid."""

    code = "validation"
    text = "Some fields are not valid."

    def __init__(self, *errors: FieldError) -> None:
        """Take every field that is not valid."""
        super().__init__()
        self.errors = errors

    def __str__(self) -> str:
        """Return the text and all fields in one line."""
        return " ".join((self.detail, *(f"{error.field}: {error.message}" for error in self.errors)))


class NoTriggerError(CarillonError):
    """No trigger node of the workflow matches the event."""

    code = "no_trigger"
    text = "No trigger node of the workflow matches the event."


class UnavailableError(CarillonError):
    """The database cannot be reached, or cannot be used now."""

    code = "database_unavailable"
    text = "The database cannot be reached right now."


class DatabaseRefusesError(UnavailableError):
    """The login to the database failed."""

    text = "The database refuses the user or the password."


class NoSuchDatabaseError(UnavailableError):
    """The database does not exist on the server."""

    text = "The server has no database of that name."


class ReadOnlyDatabaseError(UnavailableError):
    """The database is read-only."""

    text = "The database takes no writes: it is a standby, or it was made read-only."


class DiskFullError(UnavailableError):
    """The disk of the database is full."""

    text = "The database has no space left to write to."


class NotMigratedError(UnavailableError):
    """The schema of the database is older than this release needs."""

    def __init__(self, current: str, needed: str) -> None:
        """Take the current version of the schema and the one that is needed."""
        super().__init__(f"The database is not migrated yet: its schema is {current}, {needed} is needed.")


class QueryTimeoutError(UnavailableError):
    """The query was stopped at its time limit."""

    code = "query_timeout"
    text = "The query took too long. Narrow it down by filters or by `limit`, or try again later."


class ShareUsedUpError(CarillonError):
    """The user has used up their share of the database connections."""

    code = "too_many_at_once"
    text = "Other requests of this user are using all the database connections that one user may use. Try again later."


class InDoubtError(UnavailableError):
    """The connection was lost during a commit: it may have been written, or not."""

    code = "in_doubt"
    text = "The connection was lost during a commit, so it may have been stored or not. Read the object to find out."


class LeaseExpiredError(CarillonError):
    """The lease of the worker has expired."""

    code = "lease_expired"
    text = "The worker's lease has expired, so it may not claim anything."


def field_error(error: msgspec.ValidationError, within: str = "") -> FieldError:
    """Translate msgspec's error: the path of the field, below ``within``, and the message without the path."""
    text = str(error)
    path = _PATH.search(text)
    message = text[: path.start()] if path else text
    field_name = _FIELD_NAME.search(message)
    steps = (within, path.group(1) if path else "", field_name.group(1) if field_name else "")
    return FieldError(".".join(step for step in steps if step).replace(".[", "["), f"{message}.")
