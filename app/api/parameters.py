"""The parameters that several calls share, with their bounds."""

from typing import Annotated

from litestar.params import PathParameter, QueryParameter

from app.services.inputs import INT_MAX

# A number beyond the bounds is one that nothing has: 404, not 422.
Id = Annotated[int, PathParameter(schema_extra={"minimum": 1, "maximum": INT_MAX})]
Limit = Annotated[int, QueryParameter(ge=1, le=500)]
Offset = Annotated[int, QueryParameter(ge=0, le=INT_MAX)]
# Where the part before ended, as it was answered.
Cursor = Annotated[str | None, QueryParameter(max_length=500, pattern=r"^[A-Za-z0-9_-]+$")]
WorkflowFilter = Annotated[int | None, QueryParameter(ge=1, le=INT_MAX)]
# Litestar would take a number for a moment as well; ``Span`` reads these as strictly as a body.
Since = Annotated[str | None, QueryParameter(name="from", schema_extra={"format": "date-time"})]
At = Annotated[str | None, QueryParameter(name="at", schema_extra={"format": "date-time"})]
Until = Annotated[str | None, QueryParameter(name="to", schema_extra={"format": "date-time"})]
