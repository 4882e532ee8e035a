"""The parameters that several calls share, with their bounds."""

from typing import Annotated

from litestar.params import PathParameter, QueryParameter

from app.domain.errors import FieldError, InvalidError
from app.domain.parts import MOST_OFFSET, Part
from app.services.inputs import INT_MAX

# A number beyond the bounds is one that nothing has: 404, not 422.
Id = Annotated[int, PathParameter(schema_extra={"minimum": 1, "maximum": INT_MAX})]
Limit = Annotated[int, QueryParameter(ge=1, le=500)]
# Its upper bound is checked by ``listed``, which says what to use instead.
Offset = Annotated[int, QueryParameter(ge=0, schema_extra={"maximum": MOST_OFFSET})]
# Where the part before ended, as it was answered.
Cursor = Annotated[str | None, QueryParameter(max_length=500, pattern=r"^[A-Za-z0-9_-]+$")]
WorkflowFilter = Annotated[int | None, QueryParameter(ge=1, le=INT_MAX)]
# Litestar would take a number for a moment as well; ``Span`` reads these as strictly as a body.
Since = Annotated[str | None, QueryParameter(name="from", schema_extra={"format": "date-time"})]
At = Annotated[str | None, QueryParameter(name="at", schema_extra={"format": "date-time"})]
Until = Annotated[str | None, QueryParameter(name="to", schema_extra={"format": "date-time"})]


def listed(limit: int, cursor: str | None, offset: int = 0, *, counts: bool = True) -> Part:
    """The part of a list that a query asks for; ``counts`` says whether the answer has a ``total``."""
    if offset > MOST_OFFSET:
        message = f"It must be at most {MOST_OFFSET}. Use `cursor` with the `next_cursor` of the page before instead."
        raise InvalidError(FieldError("offset", message))
    return Part(limit, offset, cursor, counts)
