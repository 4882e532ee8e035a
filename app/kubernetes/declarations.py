"""Requests to Carillon for the objects of one namespace, with the token of that namespace.

Objects go through ``POST /apply/``, as files do: rights, quotas, audit and the rule that a pause is never lifted are
the same. All calls block; the passes make them in threads.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from app.client.connection import Connection, path_part
from app.client.contexts import Target
from app.client.errors import ApiError, ClientError, Exit
from app.domain.declarations import Act, Kind
from app.domain.kubernetes_objects import (
    DeletionPolicy,
    Reason,
    Resource,
    Verdict,
    batches,
    document_of,
    refusals,
)

# The file with the token of namespaces that have no file of their own. No namespace has such a name.
DEFAULT_TOKEN = "_default"  # noqa: S105 - the name of a file
# Documents that are refused are left out one after another, so that they do not hold back the others.
MOST_ATTEMPTS = 30
MOST_NAMES = 10
UNPROCESSABLE, WRONG_STATE, NOT_FOUND = 422, 400, 404
STATUS_FIELDS = "id,status,next_run_at,last_outcome"
AS_DECLARED = Verdict(Reason.APPLIED, "Carillon has it as it is declared.")

Claim = tuple[Kind, str]
Step = dict[str, Any]
# Stands for all objects of a namespace among the verdicts of a batch; no object has an empty name.
WHOLE_NAMESPACE: Claim = (Kind.WORKFLOW, "")


class NoTokenError(Exception):
    """No token is known for a namespace."""

    code = "no_token"


def token_of(folder: str, namespace: str) -> str:
    """Return the token of a namespace: its own file in the folder, else the one for all others. It is read anew."""
    for name in (namespace, DEFAULT_TOKEN):
        try:
            token = (Path(folder) / name).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if token:
            return token
    raise NoTokenError(f"No token is known for the namespace '{namespace}'.")


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What became of documents: verdicts by claim, ids of all objects of the namespace, and how many were changed."""

    verdicts: dict[Claim, Verdict]
    ids: dict[Claim, str]
    changes: dict[str, int]
    # Why the ids are not known.
    problem: Verdict | None = None


class CarillonNamespace:
    """A namespace of Carillon, as the user of one token."""

    def __init__(self, url: str, token: str, namespace: str) -> None:
        """Connect to this server when the first request is made."""
        target = Target(url=url, token=token, source="CARILLON_OPERATOR_URL")
        # Passes can be repeated as they are, and there are many: their answers need not be stored.
        self._connection = Connection(target, lambda _: None, has_keys=False)
        self._namespace = namespace

    def __enter__(self) -> Self:
        """Begin a block at whose end the connection is closed."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the connection."""
        self._connection.close()

    def apply(self, resources: Sequence[Resource]) -> Applied:
        """Apply objects. Those that are refused do not hold back the others."""
        verdicts: dict[Claim, Verdict] = {}
        steps: list[Step] = []
        for batch in batches(resources, self._namespace):
            of_batch, refused = self._apply_batch(batch)
            verdicts |= {one.claim: AS_DECLARED for one in batch} | refused
            steps += of_batch
        if resources and not steps:
            # If all is refused, the answer to nothing at all names what the namespace has.
            steps, refused = self._apply_batch([])
            verdicts |= refused
        problem = verdicts.pop(WHOLE_NAMESPACE, None)
        ids = {(Kind(step["kind"]), step["name"]): str(step["id"]) for step in steps if step["id"] is not None}
        changes = Counter(step["act"] for step in steps if step["act"] in {Act.CREATE, Act.CHANGE})
        return Applied(verdicts=verdicts, ids=ids, changes=dict(changes), problem=None if steps else problem)

    def schedules(self) -> dict[str, dict[str, Any]]:
        """Return the schedules of the namespace by id, with what their status needs."""
        params = {"namespace": self._namespace, "fields": STATUS_FIELDS}
        pages = self._connection.pages("/schedules/", params)
        return {item["id"]: item for page in pages for item in page.items}

    def remove(self, kind: Kind, object_id: str, policy: DeletionPolicy) -> Verdict | None:
        """Delete or pause what a deleted object declared; return why it cannot be, or None."""
        if policy is DeletionPolicy.KEEP:
            return None
        if kind is Kind.WORKFLOW:
            users = self._names_of_schedules(object_id)
            if users:
                return Verdict(Reason.IN_USE, f"Schedules run this workflow: {users}. Delete them first.")
        try:
            if policy is DeletionPolicy.PAUSE and kind is Kind.SCHEDULE:
                note = {"note": "Its Kubernetes object was deleted."}
                self._connection.call("POST", f"/schedules/{path_part(object_id)}/pause/", note)
            else:
                self._connection.call("DELETE", f"/{kind}s/{path_part(object_id)}/")
        except ApiError as error:
            # It is gone already, or paused, done or dead.
            if error.status not in {NOT_FOUND, WRONG_STATE}:
                raise
        return None

    def _names_of_schedules(self, workflow_id: str) -> str:
        """Return the names of some schedules that run a workflow: deleting it would delete them too."""
        params = {"workflow_id": workflow_id, "fields": "name", "limit": MOST_NAMES}
        return ", ".join(f"'{item['name']}'" for item in self._connection.get("/schedules/", params)["items"])

    def _apply_batch(self, batch: Sequence[Resource]) -> tuple[list[Step], dict[Claim, Verdict]]:
        """Apply documents; leave out what is refused and try again. Return the steps, and why objects were refused."""
        left, refused = list(batch), dict[Claim, Verdict]()
        for attempt in range(MOST_ATTEMPTS):
            try:
                return self._send(left), refused
            except ApiError as error:
                if error.status != UNPROCESSABLE:
                    raise
                found = refusals(error.errors, left)
                of_all = found.of_all or (() if found.by_index else (error.message,))
                is_last = attempt == MOST_ATTEMPTS - 1
                failed = range(len(left)) if of_all or is_last else found.by_index
                for index in failed:
                    messages = (*of_all, *found.by_index.get(index, ())) or (error.message,)
                    refused[left[index].claim] = Verdict(Reason.INVALID, "\n".join(messages))
                left = [one for index, one in enumerate(left) if index not in failed]
                if of_all:
                    refused[WHOLE_NAMESPACE] = Verdict(Reason.INVALID, "\n".join(of_all))
                    break
        return [], refused

    def _send(self, resources: Sequence[Resource]) -> list[Step]:
        # Without objects, too, the answer names what the namespace has.
        documents = [document_of(one, self._namespace) for one in resources] or [{"namespace": self._namespace}]
        steps: list[Step] = self._connection.call("POST", "/apply/", {"documents": documents})["steps"]
        return steps


def verdict_of(error: ClientError | NoTokenError) -> Verdict:
    """Return why nothing of a namespace could be applied."""
    if isinstance(error, NoTokenError):
        return Verdict(Reason.NO_TOKEN, str(error))
    is_refused = isinstance(error, ApiError) and error.code is not Exit.FAILED
    return Verdict(Reason.REFUSED if is_refused else Reason.UNREACHABLE, "\n".join((error.message, *error.lines)))
