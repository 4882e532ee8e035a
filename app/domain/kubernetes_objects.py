"""Objects of Kubernetes that declare schedules and workflows: their documents, claims on names, and status."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from app.domain.declarations import Kind

GROUP = "carillon.dev"
VERSION = "v1alpha1"
FINALIZER = f"{GROUP}/finalizer"
# The kinds that have objects, in the order in which they are declared; they are removed in the opposite order.
KINDS = (Kind.WORKFLOW, Kind.SCHEDULE)
PLURALS = {Kind.SCHEDULE: "schedules", Kind.WORKFLOW: "workflows"}
# The field of a spec that is the operator's own, and no field of a document.
POLICY_FIELD = "deletionPolicy"
READY = "Ready"
MOST_MESSAGE_CHARACTERS = 4000
# A body of the API may have 256 KiB.
MOST_BATCH_BYTES = 200_000
MOST_BATCH_DOCUMENTS = 500
_DOCUMENT = re.compile(r"documents\[(\d+)\]")

Json = dict[str, Any]


class DeletionPolicy(StrEnum):
    """What becomes of a schedule or workflow when its object is deleted."""

    DELETE = "delete"
    PAUSE = "pause"
    KEEP = "keep"


class Reason(StrEnum):
    """Why an object is ready, or is not."""

    APPLIED = "Applied"
    INVALID = "Invalid"
    NAME_TAKEN = "NameTaken"
    NO_TOKEN = "NoToken"  # noqa: S105 - a reason, no token
    REFUSED = "Refused"
    UNREACHABLE = "Unreachable"
    IN_USE = "InUse"


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """An object of Kubernetes."""

    kind: Kind
    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    # As Kubernetes writes times; they sort as text.
    created_at: str = ""
    is_deleting: bool = False
    finalizers: tuple[str, ...] = ()
    spec: Json = {}
    status: Json = {}

    @property
    def declared_name(self) -> str:
        """The name in Carillon: ``spec.name``, else the name of the object."""
        name = self.spec.get("name")
        return name if isinstance(name, str) and name else self.name

    @property
    def claim(self) -> tuple[Kind, str]:
        """The kind and the name in Carillon, which one object of a namespace can have."""
        return self.kind, self.declared_name

    @property
    def deletion_policy(self) -> DeletionPolicy:
        """What becomes of what it declares when it is deleted."""
        given = self.spec.get(POLICY_FIELD)
        return DeletionPolicy(given) if given in set(DeletionPolicy) else DeletionPolicy.DELETE

    @property
    def is_ready(self) -> bool:
        """Whether its status says that it was applied."""
        return _ready_condition(self).get("status") == "True"

    @property
    def reason(self) -> str:
        """Why it is ready or not, as its status says."""
        return str(_ready_condition(self).get("reason", ""))

    @property
    def leaves_nothing(self) -> bool:
        """Whether it can be deleted without Carillon: it was never applied, or what it declares is to be kept."""
        return not self.status.get("id") or self.deletion_policy is DeletionPolicy.KEEP


def resource_of(kind: Kind, value: Json) -> Resource:
    """Return the object that the API server describes."""
    metadata = value.get("metadata", {})
    return Resource(
        kind=kind,
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        resource_version=metadata.get("resourceVersion", ""),
        generation=metadata.get("generation", 0),
        created_at=metadata.get("creationTimestamp") or "",
        is_deleting=bool(metadata.get("deletionTimestamp")),
        finalizers=tuple(metadata.get("finalizers") or ()),
        spec=value.get("spec") or {},
        status=value.get("status") or {},
    )


def needs_pass(before: Resource | None, after: Resource | None) -> bool:
    """Return whether a change of an object is one of what it declares, and not only of its status."""
    if before is None or after is None:
        return before is not after
    return (before.uid, before.generation, before.is_deleting) != (after.uid, after.generation, after.is_deleting)


def claimants(resources: Iterable[Resource]) -> dict[tuple[Kind, str], Resource]:
    """Return the object that each name of a namespace belongs to: the oldest of those that declare it."""
    owners: dict[tuple[Kind, str], Resource] = {}
    for resource in sorted(resources, key=lambda one: (one.created_at, one.uid)):
        owners.setdefault(resource.claim, resource)
    return owners


def declared(resources: Iterable[Resource]) -> list[Resource]:
    """Return the objects of a namespace that are to be applied, workflows before the schedules that run them."""
    owners = claimants(resources).values()
    return sorted((one for one in owners if not one.is_deleting), key=lambda one: (KINDS.index(one.kind), one.name))


def document_of(resource: Resource, namespace: str) -> Json:
    """Return an object as a document of ``apply``, in a namespace of Carillon."""
    fields = {name: value for name, value in resource.spec.items() if name != POLICY_FIELD}
    return {"namespace": namespace, f"{resource.kind}s": [{**fields, "name": resource.declared_name}]}


def batches(resources: Iterable[Resource], namespace: str) -> list[list[Resource]]:
    """Return objects in groups whose documents fit into one request."""
    groups: list[list[Resource]] = [[]]
    size = 0
    for resource in resources:
        length = len(msgspec.json.encode(document_of(resource, namespace)))
        if groups[-1] and (size + length > MOST_BATCH_BYTES or len(groups[-1]) == MOST_BATCH_DOCUMENTS):
            groups.append([])
            size = 0
        groups[-1].append(resource)
        size += length
    return groups


class Refusals(msgspec.Struct, frozen=True):
    """Why documents were refused: by their index, and what concerns all of them."""

    by_index: dict[int, tuple[str, ...]]
    of_all: tuple[str, ...]


def refusals(errors: Iterable[Mapping[str, Any]], resources: Sequence[Resource]) -> Refusals:
    """Return the errors of an answer of ``apply`` by the documents of these objects, without the names of objects."""
    by_index: dict[int, list[str]] = {}
    of_all: list[str] = []
    for error in errors:
        message = str(error.get("message", ""))
        found = _DOCUMENT.match(str(error.get("field", "")))
        index = int(found[1]) if found else -1
        if not 0 <= index < len(resources):
            of_all.append(message)
            continue
        label = f"{resources[index].kind} '{resources[index].declared_name}': "
        # An error without the name of an object is one of the whole namespace, such as a foreign owner.
        target = by_index.setdefault(index, []) if message.startswith(label) else of_all
        target.append(message.removeprefix(label))
    return Refusals({index: tuple(messages) for index, messages in by_index.items()}, tuple(of_all))


class Verdict(msgspec.Struct, frozen=True):
    """Whether an object was applied, and why not."""

    reason: Reason
    message: str

    @property
    def is_ready(self) -> bool:
        """Whether the object was applied."""
        return self.reason is Reason.APPLIED


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What Carillon has for an object."""

    id: str | None = None
    state: str | None = None
    next_run_at: str | None = None
    last_outcome: str | None = None


def observation_of(object_id: str | None, schedule: Mapping[str, Any] | None) -> Observation:
    """Return what is known of an object by its id, and for a schedule by its entry in the list of the API."""
    if schedule is None:
        return Observation(id=object_id)
    return Observation(
        id=object_id,
        state=schedule.get("status"),
        next_run_at=schedule.get("next_run_at"),
        last_outcome=schedule.get("last_outcome"),
    )


def status_patch(resource: Resource, verdict: Verdict, observed: Observation, now: datetime) -> Json | None:
    """Return the changes of an object's status as a merge patch, or None if it says the same already."""
    wanted: Json = {
        "id": observed.id,
        "state": observed.state,
        "nextRunAt": observed.next_run_at,
        "lastOutcome": observed.last_outcome,
        "observedGeneration": resource.generation,
        "conditions": _with_ready(resource, verdict, now),
    }
    changes = {name: value for name, value in wanted.items() if resource.status.get(name) != value}
    return changes or None


def _with_ready(resource: Resource, verdict: Verdict, now: datetime) -> list[Json]:
    """Return the conditions with the one of the verdict; its time changes only with its status."""
    others = [one for one in _conditions(resource) if one.get("type") != READY]
    before = _ready_condition(resource)
    status = "True" if verdict.is_ready else "False"
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    condition = {
        "type": READY,
        "status": status,
        "reason": str(verdict.reason),
        "message": _shortened(verdict.message),
        "lastTransitionTime": since or now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "observedGeneration": resource.generation,
    }
    return [*others, condition]


def _conditions(resource: Resource) -> list[Json]:
    found = resource.status.get("conditions")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _ready_condition(resource: Resource) -> Json:
    return next((one for one in _conditions(resource) if one.get("type") == READY), {})


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_MESSAGE_CHARACTERS else f"{text[: MOST_MESSAGE_CHARACTERS - 3]}..."
