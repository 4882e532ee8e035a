"""Admission: whether an object may be stored, by quotas, workflow owners, node configurations and secrets."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar
from uuid import UUID

import msgspec
from yarl import URL

from app.actions.catalog import Catalog, SecretMisusedError, node_errors
from app.actions.secrets import SecretStore
from app.actions.templates import MARK
from app.domain.access import Actor, Owner, owner_for, require_labels, require_owner, require_workflow_owner
from app.domain.audit import Origin
from app.domain.errors import (
    CarillonError,
    FieldError,
    KeyTakenError,
    NoSuchTeamError,
    QuotaExceededError,
)
from app.domain.limits import DEFAULT_CAPS, Caps, Quota, require_room
from app.domain.schedules import ScheduledJob
from app.domain.secrets import Secret
from app.domain.workflows import Node
from app.engine.node_resources import find_secrets
from app.engine.schedule_changes import calendar_refusals, limit_refusals
from app.persistence import keys, restrictions, teams, users, workflows
from app.persistence.audit import current_origin
from app.persistence.database import Connection
from app.persistence.quotas import QuotaBook


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How many objects an owner may have, and how large their values may be."""

    quotas: QuotaBook = msgspec.field(default_factory=QuotaBook)
    caps: Caps = DEFAULT_CAPS


NO_QUOTAS = Limits()


class Owned(Protocol):
    """An object that belongs to a user."""

    @property
    def user_profile_id(self) -> int:
        """The owner's id."""


OwnedT = TypeVar("OwnedT", bound=Owned)


def require_owned(actor: Actor, row: OwnedT | None, kind: str, *, is_within: bool = False) -> OwnedT:
    """Return an object that the actor may see; ``NotFoundError`` if there is none, or it is not the actor's.

    ``is_within`` says whether the restriction of the actor's token, if it has one, leaves the object.
    """
    require_owner(actor, None if row is None else row.user_profile_id, kind, is_within=is_within)
    if row is None:
        raise AssertionError(f"a {kind} that does not exist passed the check of its owner")
    return row


async def schedule_is_within(connection: Connection, actor: Actor, job_id: UUID) -> bool:
    """Return whether the restriction of the actor's token leaves a schedule and what belongs to it."""
    return actor.restriction is None or await restrictions.admits_schedule(connection, actor.restriction, job_id)


async def workflow_is_within(connection: Connection, actor: Actor, workflow_id: int) -> bool:
    """Return whether the restriction of the actor's token leaves a workflow."""
    return actor.restriction is None or await restrictions.admits_workflow(connection, actor.restriction, workflow_id)


async def new_owner(connection: Connection, actor: Actor, team_id: int | None) -> Owner:
    """Return the owner of an object that the actor creates; ``NotFoundError`` if the team does not exist."""
    owner = owner_for(actor, team_id)
    if team_id is not None and not await teams.existing(connection, [team_id]):
        raise NoSuchTeamError
    return owner


class NewSchedule(msgspec.Struct, frozen=True):
    """A schedule to be created, and the owner of its workflow, if the request names one."""

    actor: Actor
    job: ScheduledJob
    workflow_owner: int | None = None
    # That of the request which asked for it.
    origin: Origin = msgspec.field(default_factory=current_origin)


async def require_quota(connection: Connection, limits: Limits, quota: Quota, user_id: int, count: int = 1) -> None:
    """Refuse ``count`` more objects of an owner if they exceed the quota. To be called before any row is locked."""
    limit = (await limits.quotas.refreshed(connection)).limit_of(quota, user_id)
    if limit:
        used = await users.lock_and_count(connection, quota, [user_id])
        require_room(quota, limit, used[user_id], count)


async def quota_refusal(
    connection: Connection, limits: Limits, quota: Quota, user_id: int, count: int
) -> QuotaExceededError | None:
    """Return the refusal instead of raising it, so that the caller can name other problems too."""
    try:
        await require_quota(connection, limits, quota, user_id, count)
    except QuotaExceededError as error:
        return error
    return None


async def refusals(connection: Connection, batch: Sequence[NewSchedule], limits: Limits) -> list[CarillonError | None]:
    """Return for each new schedule why it is refused, or None.

    The workflows are locked: they cannot be deleted before the transaction ends.
    """
    with_keys = [(new.job.user_profile_id, new.job.key) for new in batch if new.job.key is not None]
    await keys.lock(connection, with_keys)
    quotas = await limits.quotas.refreshed(connection)
    limit_of = {new.job.user_profile_id: quotas.limit_of(Quota.SCHEDULES, new.job.user_profile_id) for new in batch}
    limited_owners = {owner_id for owner_id, limit in limit_of.items() if limit}
    counts = await users.lock_and_count(connection, Quota.SCHEDULES, limited_owners) if limited_owners else {}
    used = dict.fromkeys(limit_of, 0) | counts
    known = await _known_teams(connection, batch)
    taken = await keys.taken(connection, with_keys)
    owners = await workflows.owners(connection, {new.job.workflow_id for new in batch})
    within = [await workflow_is_within(connection, new.actor, new.job.workflow_id) for new in batch]
    without_limit = await limit_refusals(connection, [new.job for new in batch])
    calendars = await calendar_refusals(connection, [new.job for new in batch])
    errors: list[CarillonError | None] = []
    for new, is_within in zip(batch, within, strict=True):
        owner = new.job.user_profile_id
        if new.job.team_id is not None and new.job.team_id not in known:
            error: CarillonError | None = NoSuchTeamError()
        else:
            usable = UsableWorkflow(owners.get(new.job.workflow_id), is_within=is_within)
            error = _refusal(new, usable, limit_of[owner], used[owner])
        error = error or without_limit.get(new.job.id)
        if error is None and new.job.key is not None:
            error = KeyTakenError() if (owner, new.job.key) in taken else None
            taken.add((owner, new.job.key))
        error = error or calendars.get(new.job.id)
        errors.append(error)
        used[owner] += error is None
    return errors


async def _known_teams(connection: Connection, batch: Sequence[NewSchedule]) -> set[int]:
    ids = {new.job.team_id for new in batch if new.job.team_id is not None}
    return await teams.existing(connection, ids) if ids else set()


class UsableWorkflow(msgspec.Struct, frozen=True):
    """The workflow of a schedule: its owner, and whether the restriction of the actor's token leaves it."""

    owner_id: int | None
    is_within: bool


def require_usable(actor: Actor, schedule_owner: int, workflow: UsableWorkflow, named: int | None) -> None:
    """Refuse a workflow that the actor may not see, or whose other owner is not named."""
    require_owner(actor, workflow.owner_id, "workflow", is_within=workflow.is_within)
    if workflow.owner_id is not None:
        require_workflow_owner(schedule_owner, workflow.owner_id, named)


def _refusal(new: NewSchedule, workflow: UsableWorkflow, limit: int, used: int) -> CarillonError | None:
    try:
        require_usable(new.actor, new.job.user_profile_id, workflow, new.workflow_owner)
        require_labels(new.actor, new.job.labels)
        require_room(Quota.SCHEDULES, limit, used)
    except CarillonError as error:
        return error
    return None


# A template whose scheme and host are literal: it fills in only what follows them.
_LITERAL_HOST = re.compile(r"https?://[^/?#\\]+[/?#]")


class SecretChecks:
    """Checks the secrets of nodes when the nodes are stored. Runs check again, when their URLs are filled in."""

    def __init__(self, catalog: Catalog, environment: SecretStore) -> None:
        """Know the secrets in the environment of this process; a worker may have others."""
        self._catalog = catalog
        self._environment = environment

    async def errors(
        self, connection: Connection, owner: Actor, nodes: Sequence[Node], whose: str = "you"
    ) -> list[FieldError]:
        """Return what is wrong with the secrets in these nodes, each named by node and field."""
        names = self._catalog.secrets_named_by(nodes)
        usable = await find_secrets(connection, self._environment, [owner], names) if names else {}
        errors: list[FieldError] = []
        for index, node in enumerate(nodes):
            errors += node_errors(index, node, self._of_node(node, owner, usable, whose))
        return errors

    def _of_node(self, node: Node, owner: Actor, usable: Mapping[str, Secret], whose: str) -> list[FieldError]:
        errors = []
        target = literal_target(node.config.get("url"))
        try:
            uses = self._catalog.secret_uses(node)
        except SecretMisusedError as error:
            return [FieldError(error.place, str(error))]
        for place, names in uses.items():
            for name in sorted(names):
                secret = usable.get(name)
                if secret is None and not owner.sees_all:
                    errors.append(FieldError(place, f"There is no secret '{name}' for {whose}."))
                # The environment of a worker may have an admin's secret that this process does not have.
                elif secret is not None and target is not None and not secret.may_go_to(*target):
                    errors.append(FieldError(place, secret.refusal(target[0])))
        return errors


class Admission(msgspec.Struct, frozen=True):
    """What a workflow or a webhook is checked against before it is stored."""

    catalog: Catalog
    secrets: SecretChecks
    limits: Limits = NO_QUOTAS

    async def secret_errors(
        self, connection: Connection, actor: Actor, owned: tuple[int, str], nodes: Sequence[Node]
    ) -> list[FieldError]:
        """Return what is wrong with the secrets in the nodes of an object that the actor changes.

        Its owner's rights count, who may not be the actor: ``owned`` is the owner's id and the kind of the object.
        """
        owner_id, kind = owned
        if owner_id == actor.user_id:
            return await self.secrets.errors(connection, actor, nodes)
        user = await users.get(connection, owner_id)
        owner = users.to_actor(user) if user else actor
        return await self.secrets.errors(connection, owner, nodes, f"the owner of the {kind}")


def admission_of(catalog: Catalog, environment: SecretStore, limits: Limits = NO_QUOTAS) -> Admission:
    """Return the checks of a process with these actions, secrets and limits."""
    return Admission(catalog, SecretChecks(catalog, environment), limits)


def literal_target(url: Any) -> tuple[str, int | None] | None:
    """Return host and port of a URL, or None if a template fills them in."""
    if not isinstance(url, str):
        return None
    head = url.partition(MARK)[0]
    if MARK in url and not _LITERAL_HOST.match(head):
        return None
    try:
        host, port = URL(head).raw_host, URL(head).port
    except ValueError:
        return None
    return (host, port) if host else None
