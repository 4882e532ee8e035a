"""The parameters that several calls share, with their bounds."""

from datetime import datetime
from typing import Annotated

from litestar.params import QueryParameter

from app.services.inputs import INT_MAX

# Far beyond every list, and within what Postgres counts with.
OFFSET_MAX = 2**31 - 1

Limit = Annotated[int, QueryParameter(ge=1, le=500)]
Offset = Annotated[int, QueryParameter(ge=0, le=OFFSET_MAX)]
WorkflowFilter = Annotated[int | None, QueryParameter(ge=1, le=INT_MAX)]
Since = Annotated[datetime | None, QueryParameter(name="from")]
Until = Annotated[datetime | None, QueryParameter(name="to")]
