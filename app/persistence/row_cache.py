"""What runs, and on whose behalf: read anew for every run, but for the bodies of workflows that have not changed."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cache import BoundedCache
from app.domain.access import Actor, lesser
from app.domain.workflows import Workflow
from app.persistence.sql_batches import fetch
from app.persistence.users import as_actor

MOST_KEPT = 1000
# Of graphs, as JSON; as values they take several times as much.
MOST_GRAPH_BYTES = 16 * 1024 * 1024

_encode = msgspec.json.Encoder().encode

_READ = (
    "SELECT asked.user_id, asked.flow_id, u.xmin, u.username, u.role, u.kind, w.id, w.xmin, "
    "w.xmin IS NOT DISTINCT FROM asked.version AS is_known, "
    "CASE WHEN w.xmin IS DISTINCT FROM asked.version THEN jsonb_build_object('id', w.id, 'name', w.name, "
    "'user_profile_id', w.user_profile_id, 'active', w.active, 'nodes', w.nodes, 'edges', w.edges) END AS body, "
    "o.id, o.xmin, o.username, o.role, o.kind "
    "FROM unnest($1::int[], $2::int[], $3::xid[]) AS asked(user_id, flow_id, version) "
    "LEFT JOIN user_profiles AS u ON u.id = asked.user_id LEFT JOIN workflows AS w ON w.id = asked.flow_id "
    "LEFT JOIN user_profiles AS o ON o.id = w.user_profile_id"
)

# The user and the workflow of an execution; one of an entity has no workflow.
Ids = tuple[int, int | None]
# The actor whose rights the run has, and what it runs.
Subject = tuple[Actor | None, Workflow | None]


class Sight(msgspec.Struct, frozen=True):
    """The versions of the rows that a claim saw: the workflow, the schedule's owner and, if another, the workflow's."""

    flow_version: int
    user_version: int
    flow_owner_version: int | None = None


class Subjects:
    """Reads users and workflows. A workflow travels again only when it was changed."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._flows: BoundedCache[int, tuple[int, Workflow, int]] = BoundedCache(MOST_KEPT, MOST_GRAPH_BYTES)
        self._users: BoundedCache[int, tuple[int, Actor]] = BoundedCache(MOST_KEPT, MOST_KEPT)

    def clear(self) -> None:
        """Forget everything: the versions of rows mean something else now."""
        self._flows.clear()
        self._users.clear()

    def recall(self, ids: Ids, sight: Sight) -> Subject | None:
        """Both, if they are known in the versions that were seen."""
        user_id, flow_id = ids
        user, flow = self._users.get(user_id), None if flow_id is None else self._flows.get(flow_id)
        if user is None or flow is None or user[0] != sight.user_version or flow[0] != sight.flow_version:
            return None
        if flow[1].user_profile_id == user_id:
            return user[1], flow[1]
        owner = self._users.get(flow[1].user_profile_id)
        if owner is None or owner[0] != sight.flow_owner_version:
            return None
        return lesser(user[1], owner[1]), flow[1]

    async def read(self, connection: AsyncConnection, wanted: Sequence[Ids]) -> list[Subject]:
        """Each at the place where it was asked for, as they are now; None for what is gone."""
        asked = list(dict.fromkeys(wanted))
        known = [None if flow_id is None else self._flows.get(flow_id) for _, flow_id in asked]
        versions = [None if one is None else one[0] for one in known]
        # Another flow of the same answer may push a known one out of the cache.
        flows = {one[1].id: one for one in known if one is not None}
        rows = await fetch(
            connection, _READ, [user_id for user_id, _ in asked], [flow_id for _, flow_id in asked], versions
        )
        found = {(row[0], row[1]): self._subject(row, flows) for row in rows}
        return [found[ids] for ids in wanted]

    def _subject(self, row: Sequence[Any], known: Mapping[int, tuple[int, Workflow, int]]) -> Subject:
        user, flow = self._user(row[0], *row[2:6]), self._flow(known, *row[6:10])
        if user is None or flow is None:
            return user, flow
        owner = self._user(*row[10:])
        return (lesser(user, owner) if owner else None), flow

    def _user(self, user_id: int, version: int, username: str | None, role: str, kind: str) -> Actor | None:
        """Remember a user that was read; None if there is none."""
        if username is None:
            return None
        actor = as_actor(user_id, username, role, kind)
        self._users.keep(user_id, (version, actor), 1)
        return actor

    def _flow(
        self,
        known: Mapping[int, tuple[int, Workflow, int]],
        flow_id: int | None,
        version: int,
        is_known: bool,  # noqa: FBT001 - a column
        body: Any,
    ) -> Workflow | None:
        """Remember a workflow that was read; None if there is none."""
        if flow_id is None:
            return None
        if is_known:
            _, flow, weight = known[flow_id]
        else:
            flow, weight = msgspec.convert(body, Workflow), len(_encode(body))
        self._flows.keep(flow_id, (version, flow, weight), weight)
        return flow
