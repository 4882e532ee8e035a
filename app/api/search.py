"""``/api/v1/search``: schedules and workflows by a part of a text."""

from typing import Annotated

from litestar import Controller, get
from litestar.di import NamedDependency
from litestar.params import QueryParameter

from app.api.requests import KEEPS_TO_RESTRICTIONS, Acting
from app.services.search import SearchService
from app.services.views import SearchView

Wanted = Annotated[str, QueryParameter(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]
Most = Annotated[int, QueryParameter(ge=1, le=100)]


class SearchController(Controller):
    """Search over everything that has a name."""

    path = "/search"
    tags = ("search",)
    opt = KEEPS_TO_RESTRICTIONS

    @get("/", summary="Find schedules and workflows by a part of the name, the key or a target host, or by the id.")
    async def find(
        self, actor: Acting, search_service: NamedDependency[SearchService], q: Wanted, limit: Most = 20
    ) -> SearchView:
        return await search_service.search(actor, q, limit)
