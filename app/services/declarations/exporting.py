"""``carillon export``: what there is, as files that declare it."""

from collections.abc import Iterable
from typing import Any

import msgspec
from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor, require_admin
from app.domain.declarations import Key
from app.domain.errors import FieldError, InvalidError, NotFoundError
from app.domain.schedules import ScheduledJob, Status
from app.persistence import declarations, users, workflows
from app.persistence.database import Database, read_one_moment
from app.services.declarations.entries import schedule_entry, workflow_entry
from app.services.declarations.yaml_text import write_documents
from app.services.inputs import DeclarationInput
from app.services.validation import checked

HEADING = "# Workflows and schedules of Carillon. To apply them: carillon apply -f FILE\n"


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """What to write: what is managed, in one namespace perhaps, or what is not, for a namespace to come."""

    namespace: str | None = None
    owner: str | None = None
    for_namespace: str | None = None


class ExportService:
    """Writes declarations."""

    def __init__(self, database: Database) -> None:
        """Read from here."""
        self._database = database

    async def export(self, actor: Actor, wanted: Selection) -> str:
        """The text of a file that declares what was selected."""
        require_admin(actor)
        if wanted.for_namespace is not None:
            checked({"namespace": wanted.for_namespace}, DeclarationInput)
            if wanted.namespace is not None:
                raise InvalidError(FieldError("namespace", "What is managed has its namespace already."))
        async with self._database.transaction() as connection:
            await read_one_moment(connection)
            owner = None if wanted.owner is None else (await users.owner(connection, wanted.owner)).user_id
            if wanted.for_namespace is None:
                documents = await _managed(connection, wanted.namespace, owner)
            else:
                documents = [await _unmanaged(connection, wanted.for_namespace, owner)]
        found = [document for document in documents if len(document) > 1]
        if not found:
            raise NotFoundError("There is nothing to export.")
        return HEADING + write_documents(found)


async def _managed(connection: AsyncConnection, namespace: str | None, owner: int | None) -> list[dict[str, Any]]:
    wanted = None if namespace is None else {namespace}
    flows = _of_owner(await declarations.managed_workflows(connection, wanted), owner)
    jobs = _of_owner(await declarations.managed_schedules(connection, wanted), owner)
    return [
        await _document(
            connection,
            name,
            {key.name: row for key, row in flows.items() if key.namespace == name},
            {key.name: job for key, job in jobs.items() if key.namespace == name},
        )
        for name in sorted({key.namespace for key in (*flows, *jobs)})
    ]


async def _unmanaged(connection: AsyncConnection, namespace: str, owner: int | None) -> dict[str, Any]:
    """What has nothing left to do is left out: it would be refused, or begin anew."""
    rows = await declarations.unmanaged_workflows(connection, owner)
    jobs = [job for job in await declarations.unmanaged_schedules(connection, owner) if job.status is not Status.DONE]
    return await _document(connection, namespace, _named(rows), _named(jobs))


async def _document(
    connection: AsyncConnection, namespace: str, flows: dict[str, Row[Any]], jobs: dict[str, ScheduledJob]
) -> dict[str, Any]:
    """One namespace, with all that its schedules run."""
    missing = {job.workflow_id for job in jobs.values()} - {row.id for row in flows.values()}
    used = await workflows.rows(connection, missing)
    flows = flows | _named((used[number] for number in sorted(used)), taken=set(flows))
    names = {row.id: name for name, row in flows.items()}
    document: dict[str, Any] = {"namespace": namespace}
    if flows:
        document["workflows"] = [workflow_entry(name, row) for name, row in sorted(flows.items())]
    if jobs:
        document["schedules"] = [
            schedule_entry(name, names[jobs[name].workflow_id], jobs[name]) for name in sorted(jobs)
        ]
    return document


def _of_owner(found: dict[Key, Any], owner: int | None) -> dict[Key, Any]:
    return {key: one for key, one in found.items() if owner is None or one.user_profile_id == owner}


def _named(things: Iterable[Any], taken: set[str] | None = None) -> dict[str, Any]:
    """By name; one whose name is taken gets a number behind it."""
    named: dict[str, Any] = {}
    for thing in things:
        name, number = thing.name, 1
        while name in named or name in (taken or ()):
            number += 1
            name = f"{thing.name[:240]} ({number})"
        named[name] = thing
    return named
