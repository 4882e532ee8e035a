"""What runs, and on whose behalf: read anew for every run, but for the bodies of workflows that have not changed."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor
from app.domain.workflows import Workflow
from app.persistence.batches import fetch
from app.persistence.users import as_actor

MOST_KEPT = 1000

_READ = (
    "SELECT asked.user_id, asked.flow_id, u.username, u.role, u.kind, w.id, w.updated_at, "
    "w.updated_at IS NOT DISTINCT FROM asked.version AS is_known, "
    "CASE WHEN w.updated_at IS DISTINCT FROM asked.version THEN jsonb_build_object('id', w.id, 'name', w.name, "
    "'user_profile_id', w.user_profile_id, 'active', w.active, 'nodes', w.nodes, 'edges', w.edges) END AS body "
    "FROM unnest($1::int[], $2::int[], $3::timestamptz[]) AS asked(user_id, flow_id, version) "
    "LEFT JOIN user_profiles AS u ON u.id = asked.user_id LEFT JOIN workflows AS w ON w.id = asked.flow_id"
)

# The user and the workflow of an execution; one of an entity has no workflow.
Ids = tuple[int, int | None]
Subject = tuple[Actor | None, Workflow | None]


class Sight(msgspec.Struct, frozen=True):
    """What was seen of a run's subject when it was claimed: the version of its workflow, and for whom it runs."""

    version: datetime
    actor: Actor


class Subjects:
    """Reads users and workflows. A workflow travels again only when it was changed."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._known: dict[int, tuple[datetime, Workflow]] = {}

    def recall(self, flow_id: int | None, version: datetime) -> Workflow | None:
        """A workflow, if this is the version that is known."""
        known = None if flow_id is None else self._known.get(flow_id)
        return known[1] if known is not None and known[0] == version else None

    async def read(self, connection: AsyncConnection, wanted: Sequence[Ids]) -> list[Subject]:
        """Each at the place where it was asked for, as they are now; None for what is gone."""
        asked = list(dict.fromkeys(wanted))
        versions = [self._known[flow_id][0] if flow_id in self._known else None for _, flow_id in asked]
        rows = await fetch(
            connection, _READ, [user_id for user_id, _ in asked], [flow_id for _, flow_id in asked], versions
        )
        found: dict[Ids, Subject] = {}
        for user_id, flow_id, username, role, kind, existing, version, is_known, body in rows:
            actor = None if username is None else as_actor(user_id, username, role, kind)
            flow = None
            if existing is not None:
                flow = self._known[existing][1] if is_known else self._keep(version, body)
            found[user_id, flow_id] = (actor, flow)
        return [found[ids] for ids in wanted]

    def _keep(self, version: datetime, body: object) -> Workflow:
        flow = msgspec.convert(body, Workflow)
        while len(self._known) >= MOST_KEPT:
            self._known.pop(next(iter(self._known)))
        self._known[flow.id] = (version, flow)
        return flow
