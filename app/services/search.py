"""Search over what a user may see."""

import msgspec

from app.domain.access import Actor
from app.persistence import search
from app.persistence.database import Database
from app.services.views import FoundView, SearchView


class SearchService:
    """Use cases that search."""

    def __init__(self, database: Database) -> None:
        """Search in this database."""
        self._database = database

    async def search(self, actor: Actor, wanted: str, limit: int) -> SearchView:
        """Return the schedules and workflows that the actor may see and that match a text, the best matches first."""
        async with self._database.transaction("search") as connection:
            found = await search.search(connection, actor.reach(), wanted, limit)
        return SearchView(items=[msgspec.convert(one, FoundView, from_attributes=True) for one in found])
