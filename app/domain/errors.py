"""Errors as types, each with a stable code. They know nothing of HTTP; ``app.api.problems`` maps them to responses."""

from typing import ClassVar

import msgspec


class FieldError(msgspec.Struct, frozen=True):
    """What is wrong with one field."""

    field: str
    message: str


class CarillonError(Exception):
    """Base of the errors that a caller can act on.

    ``code`` is stable and part of the API. ``message`` is the text where an error is raised without a more precise one.
    """

    code: ClassVar[str] = "error"
    message: ClassVar[str] = "The request was refused."

    def __init__(self, detail: str = "") -> None:
        """Store the text: ``detail``, or the ``message`` of the class."""
        self.detail = detail or self.message
        super().__init__(self.detail)


class NotFoundError(CarillonError):
    """The object does not exist, or the user may not see it; the two are not told apart on purpose."""

    code = "not_found"
    message = "The object does not exist, or it is not yours."


class UnauthenticatedError(CarillonError):
    """The request has no valid bearer token."""

    code = "unauthenticated"
    message = "A valid bearer token is required: send `Authorization: Bearer TOKEN`."


class NoSuchTeamError(NotFoundError):
    """The team does not exist, or the actor does not belong to it."""

    message = "There is no such team."


class ForbiddenError(CarillonError):
    """The user is known and lacks the role for this."""

    code = "forbidden"
    message = "This requires the role `admin`."


class InsufficientScopeError(ForbiddenError):
    """The token, or the role in a team, does not reach far enough."""

    code = "insufficient_scope"
    message = "The token does not have the scope that this needs."

    def __init__(self, scope: str, detail: str = "") -> None:
        """Name the scope that is missing; ``detail`` is a more precise text, which names it too."""
        super().__init__(detail or f"This needs the scope `{scope}`. Your token, or your role in the team, has less.")
        self.scope = scope


class RestrictedError(ForbiddenError):
    """The token is restricted to some objects, and the call is about others."""

    code = "restricted"
    message = "This token is restricted to some objects. It cannot be used for this call."


class FeedTokenError(ForbiddenError):
    """The token was made to read calendars, and the call is another one."""

    code = "feed_only"
    message = "This token was made for calendars (`kind: feed`). It cannot be used for this call."


class WrongStateError(CarillonError):
    """The state of an object does not allow the operation."""

    code = "wrong_state"
    message = "The current state of the object does not allow this."


class ConflictError(CarillonError):
    """The request conflicts with another change."""

    code = "conflict"
    message = "The object was changed by another request. Read it again and retry."


class PlanOutdatedError(ConflictError):
    """The schedule was changed since the plan was made, or the plan has expired."""

    code = "plan_outdated"
    message = "The schedule was changed since the plan was made, or the plan is older than ten minutes. Plan again."


class PlanDiffersError(ConflictError):
    """The edit that names a plan is not the one that was planned."""

    code = "plan_differs"
    message = "The change is not the planned one. Plan this change, or send the planned one."

    def __init__(self, *fields: str) -> None:
        """Name the fields that differ."""
        named = ", ".join(f"`{field}`" for field in fields)
        super().__init__(f"The change differs from the planned one in {named}. Plan this change, or send that one.")


class KeyTakenError(ConflictError):
    """Another object of the owner has the key already."""

    code = "key_taken"
    message = "Another object of this owner has the key. Choose another key, or use PUT by-key/{key}/ to change it."


class CountChangedError(ConflictError):
    """An operation would be about another number of objects than the request expects."""

    code = "count_changed"
    message = "Another number of schedules matches than `expect_count` says. Repeat the dry run."


class PreconditionFailedError(CarillonError):
    """The object is not in the version that the request names."""

    code = "precondition_failed"
    message = "The object was changed since you read it. Read it again, and repeat the request with its new ETag."


class ForeignWorkflowError(CarillonError):
    """An admin schedules the workflow of another user without naming that user."""

    code = "foreign_workflow"
    message = "The workflow belongs to another user, who can change what it does."

    def __init__(self, workflow_owner: int, *errors: FieldError) -> None:
        """Name the owner, so that the request can be repeated with it; in a batch, also each item concerned."""
        super().__init__(
            f"The workflow belongs to the user {workflow_owner}, who can change what it does. "
            f"To schedule it, repeat the request with `workflow_owner`: {workflow_owner}."
        )
        self.workflow_owner = workflow_owner
        self.errors = errors


class QuotaExceededError(CarillonError):
    """The user has as many objects of a kind as the quota allows."""

    code = "quota_exceeded"
    message = "The quota is used up. Delete an object first, or ask an admin to raise the quota."

    def __init__(self, detail: str, limit: int, used: int) -> None:
        """Store how many objects are allowed and how many there are."""
        super().__init__(detail)
        self.limit = limit
        self.used = used


class OutsideLeaseError(ForbiddenError):
    """The agent's lease does not reach this object or this call."""

    code = "outside_lease"
    message = "The lease of this token does not include this call. A person can do it, with a token of their own."


class LeaseExhaustedError(CarillonError):
    """A lease has no room for another schedule, run or change."""

    code = "lease_exhausted"
    message = "The lease is used up. Ask its owner to extend it."

    def __init__(self, detail: str, left: dict[str, int | None], extended_by: str) -> None:
        """Store what is left, and who can extend the lease."""
        super().__init__(detail)
        self.left = left
        self.extended_by = extended_by


class InvalidError(CarillonError):
    """Some fields of the input are not valid."""

    code = "validation"
    message = "Some fields are not valid."

    def __init__(self, *errors: FieldError) -> None:
        """Store what is wrong with each field."""
        super().__init__()
        self.errors = errors

    def __str__(self) -> str:
        """Return the message and all errors in one line."""
        return " ".join((self.detail, *(f"{error.field}: {error.message}" for error in self.errors)))


class NoTriggerError(CarillonError):
    """A run cannot start, because no trigger node of the workflow matches its event."""

    code = "no_trigger"
    message = "No trigger node of the workflow matches the event."


class UnavailableError(CarillonError):
    """The database cannot be used at the moment."""

    code = "database_unavailable"
    message = "The database cannot be reached. Try again later."


class DatabaseRefusesError(UnavailableError):
    """The login to the database failed."""

    message = "The database refuses the user or the password. Check CARILLON_DATABASE_URL."


class NoSuchDatabaseError(UnavailableError):
    """The database server has no database of the configured name."""

    message = "The server has no database of that name. Create it, or check CARILLON_DATABASE_URL."


class ReadOnlyDatabaseError(UnavailableError):
    """The database does not accept writes."""

    message = "The database accepts no writes: it is a standby, or it was made read-only."


class DiskFullError(UnavailableError):
    """The database server's disk is full."""

    message = "The disk of the database server is full."


class NotMigratedError(UnavailableError):
    """The schema of the database is older than this version needs."""

    message = "The database is not migrated yet. Run `carillon migrate`."

    def __init__(self, actual: str, needed: str) -> None:
        """Name the schema version that the database has, and the one that is needed."""
        super().__init__(
            f"The database is not migrated yet: its schema is {actual}, {needed} is needed. Run `carillon migrate`."
        )


class QueryTimeoutError(UnavailableError):
    """A query of the API ran into its time limit."""

    code = "query_timeout"
    message = "The query took too long. Narrow it down by filters or by `limit`, or try again later."


class ShareUsedUpError(CarillonError):
    """Other requests of this user use all the database connections that one user may use."""

    code = "too_many_at_once"
    message = "Too many requests of this user are being processed. Wait for some of them to finish, then retry."


class InDoubtError(UnavailableError):
    """The response to a commit was lost."""

    code = "in_doubt"
    message = "The response to a commit was lost: the change may be stored or not. Read the object before you retry."


class LeaseExpiredError(CarillonError):
    """The worker's lease has expired, so that it may not claim anything."""

    code = "lease_expired"
    message = "The worker's lease has expired. It claims nothing until the lease is renewed."
