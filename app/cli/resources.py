"""Nouns whose verbs are those of the API: list, get, create, edit, delete, and what each has beyond that."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter

from app.cli.fields import File, Sets, assignments, edited, keeping, read_fields
from app.cli.interaction import OPERATION, confirm, exit_by_operation, wait_for_operation
from app.cli.lookup import find_workflow, is_uuid
from app.cli.options import LIST, PRINT, SHOW, List, Note, Print, Printing, Show, Yes
from app.cli.output import Shape, columns, print_item, printable, say, show_item, show_list, write
from app.client.connection import API, Connection, path_part
from app.client.errors import ClientError, Exit

SHOWN_ONLY = frozenset(
    {"id", "owner", "created_at", "updated_at", "user_profile_id", "owner_kind", "owner_id", "team_id"}
)

Ref = Annotated[str, Parameter(help="The id, or the name where it has one.")]
New = Annotated[str, Parameter(help="The name of the new object, or what it has instead; the file may have it.")]


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of objects: where the API has them, how they are shown, and by which field people name them."""

    path: str
    shape: Shape
    # The field that stands in the path of one object.
    id_field: str = "id"
    # A field by which an object can be named, if that is not the one in the path.
    name_field: str = ""
    # The field of a new object that the first argument of `create` is.
    created_by: str = "name"
    # Of several objects with the same name, the one with this value of this field is meant.
    preferred: tuple[str, str] = ("", "")
    read_only: frozenset[str] = SHOWN_ONLY

    @property
    def noun(self) -> str:
        """The noun of the command line."""
        return self.shape.noun


def find(connection: Connection, resource: Resource, text: str) -> str:
    """Return the path of an object that is named by its id or by its name."""
    is_id = (text.isascii() and text.isdigit()) or is_uuid(text)
    if not resource.name_field and resource.id_field == "id" and not is_id:
        raise ClientError(f"There is no {resource.noun} '{printable(text)}'.", Exit.NOT_FOUND, hint="Give its id.")
    if not resource.name_field or is_id:
        return f"{resource.path}{path_part(text)}/"
    pages = connection.pages(resource.path)
    named = [item for page in pages for item in page.items if item[resource.name_field] == text]
    field, value = resource.preferred
    meant = [item for item in named if field and item[field] == value]
    ids = [item[resource.id_field] for item in (meant if len(meant) == 1 else named)]
    if not ids:
        raise ClientError(f"There is no {resource.noun} '{printable(text)}'.", Exit.NOT_FOUND)
    if len(ids) > 1:
        candidates = [str(one) for one in ids]
        raise ClientError(
            f"'{printable(text)}' fits {len(ids)} {resource.noun}s.",
            Exit.BAD_INPUT,
            lines=candidates,
            hint="Give the id instead.",
        )
    return f"{resource.path}{path_part(ids[0])}/"


def noun(name: str, help_text: str) -> App:
    """Return the command of a noun, without verbs."""
    return App(name=name, help=help_text, help_format="plaintext")


def add_list(app: App, resource: Resource) -> None:
    """Add the verb `list`."""

    def list_items(*, options: List = LIST) -> None:
        with options.connect() as connection:
            show_list(lambda: connection.pages(resource.path, {}, options.limit), options, resource.shape)

    app.command(list_items, name="list", help=f"List {resource.noun}s.")


def add_get(app: App, resource: Resource) -> None:
    """Add the verb `get`."""

    def get(name: Ref, /, *, options: Show = SHOW) -> None:
        with options.connect() as connection:
            path = find(connection, resource, name)
            show_item(lambda: connection.get(path), options, resource.shape)

    app.command(get, help=f"Show one {resource.noun}.")


def add_create(app: App, resource: Resource) -> None:
    """Add the verb `create`."""

    def create(name: New = "", /, *, sets: Sets = None, file: File = None, options: Print = PRINT) -> None:
        body = {**read_fields(file), **({resource.created_by: name} if name else {}), **assignments(sets)}
        with options.connect() as connection:
            print_item(connection.call("POST", resource.path, body), options, resource.shape)

    app.command(create, help=f"Create a {resource.noun} from --set and from a file.")


def add_edit(app: App, resource: Resource) -> None:
    """Add the verb `edit`."""

    def edit(name: Ref, /, *, sets: Sets = None, file: File = None, yes: Yes = False, options: Print = PRINT) -> None:
        with options.connect() as connection:
            edit_object(
                connection, resource, name, {**read_fields(file), **assignments(sets)}, yes=yes, options=options
            )

    app.command(edit, help=f"Change a {resource.noun} in an editor, by --set or by a file.")


def edit_object(
    connection: Connection, resource: Resource, name: str, given: Mapping[str, Any], *, yes: bool, options: Printing
) -> None:
    """Change an object by what is given, or in an editor; nobody else may have changed it meanwhile."""
    path = API + find(connection, resource, name)
    answer = connection.send("GET", path)
    current, draft = answer.json(), None
    if given:
        changes = {field: value for field, value in given.items() if current.get(field) != value}
    else:
        shown = {field: value for field, value in current.items() if field not in resource.read_only}
        changes, draft = edited(shown, f"{resource.noun} {printable(name)}")
    if not changes:
        if draft:
            draft.unlink(missing_ok=True)
        say("Nothing is changed.")
        return
    with keeping(draft):
        confirm(f"Change {', '.join(changes)} of {resource.noun} {printable(name)}?", yes=yes or bool(given))
        etag = answer.headers.get("etag", "")
        changed = connection.send("PATCH", path, changes, headers={"If-Match": etag} if etag else None).json()
    print_item(changed, options, resource.shape)


def add_delete(app: App, resource: Resource, text: str = "") -> None:
    """Add the verb `delete`."""

    def delete(*names: Ref, options: Print = PRINT) -> None:
        if not names:
            raise ClientError(f"Which {resource.noun}? Name at least one.", Exit.BAD_INPUT)
        with options.connect() as connection:
            for path in [find(connection, resource, name) for name in names]:
                connection.call("DELETE", path)
                say(f"Deleted {resource.noun} {path.removeprefix(resource.path).strip('/')}.")

    app.command(delete, help=text or f"Delete {resource.noun}s.")


def add_all(app: App, resource: Resource) -> App:
    """Add all five verbs."""
    for add in (add_list, add_get, add_create, add_edit, add_delete):
        add(app, resource)
    return app


def add_action(app: App, resource: Resource, verb: str, help_text: str) -> None:
    """Add a verb that is a POST on one object, with a note."""

    def act(name: Ref, /, *, note: Note = "", options: Print = PRINT) -> None:
        with options.connect() as connection:
            path = find(connection, resource, name)
            answer = connection.call("POST", f"{path}{verb}/", {"note": note} if note else {})
        if answer is not None:
            print_item(answer, options, resource.shape)

    app.command(act, name=verb, help=help_text)


NOTIFICATION = Resource(
    path="/notifications/",
    shape=Shape("notification", columns("id", "url", "events", "active", "schedule_id", "workflow_id")),
    created_by="url",
    read_only=SHOWN_ONLY | {"schedule_id", "workflow_id"},
)
DELIVERY = Shape("delivery", columns("id", "event", "status", "attempts", "created_at", "last_error"))
WEBHOOK = Resource(
    path="/webhooks/",
    shape=Shape(
        "webhook",
        columns("id", "name", "url", "active", "last_status", "next_execution_at:next run", wide=("last_error",)),
    ),
    name_field="name",
    read_only=SHOWN_ONLY | {"last_execution_at", "last_status", "next_execution_at", "last_error"},
)
TEAM = Resource(
    path="/teams/",
    shape=Shape("team", columns("id", "name", "role", "created_at")),
    name_field="name",
    read_only=SHOWN_ONLY | {"role"},
)
MEMBER = Shape("member", columns("user_id", "username", "role", "added_at"), "user_id")
SECRET = Resource(
    path="/secrets/",
    shape=Shape("secret", columns("name", "allowed_hosts", "shared_with", "updated_at"), "name"),
    id_field="name",
)
SESSION = Resource(
    path="/sessions/",
    shape=Shape("session", columns("id", "is_current:current", "address", "created_at", "seen_at", "expires_at")),
)
OPERATIONS = Resource(path="/operations/", shape=OPERATION)
AUDIT = Shape(
    "event", columns("at", "actor", "via", "action", "object_type", "object_name", "note", wide=("object_id",)), "at"
)

notification = add_all(noun("notification", "Manage notifications of events."), NOTIFICATION)
webhook = add_all(noun("webhook", "Manage webhooks."), WEBHOOK)
team = add_all(noun("team", "Manage teams."), TEAM)
secret = noun("secret", "Manage secrets. Their values are never shown.")
for _add in (add_list, add_create, add_delete):
    _add(secret, SECRET)
session = noun("session", "List and end the sessions of browsers.")
add_list(session, SESSION)
add_delete(session, SESSION, "End sessions.")
operation = noun("operation", "List, stop and undo operations on many schedules.")
add_list(operation, OPERATIONS)
add_get(operation, OPERATIONS)


@notification.command
def deliveries(notification_id: Ref, /, *, options: List = LIST) -> None:
    """List the deliveries of a notification, newest first."""
    with options.connect() as connection:
        path = f"{find(connection, NOTIFICATION, notification_id)}deliveries/"
        show_list(lambda: connection.pages(path, {}, options.limit), options, DELIVERY)


@team.command
def members(name: Ref, /, *, options: List = LIST) -> None:
    """List the members of a team."""
    with options.connect() as connection:
        path = find(connection, TEAM, name) + "members/"
        show_list(lambda: connection.pages(path, {}, options.limit), options, MEMBER)


def _add_operation_verb(verb: str, help_text: str) -> None:
    def act(
        operation_id: Ref,
        /,
        *,
        wait: Annotated[bool, Parameter(negative="", help="Wait for the end of the operation.")] = False,
        options: Print = PRINT,
    ) -> int:
        with options.connect() as connection:
            answer = connection.call("POST", f"{find(connection, OPERATIONS, operation_id)}{verb}/")
            if wait and verb != "pause":
                ended = wait_for_operation(connection, answer)
                if options.form != "table":
                    print_item(ended, options, OPERATION)
                code = exit_by_operation(ended)
                return Exit.DONE if (verb, ended["status"]) == ("cancel", "cancelled") else code
        print_item(answer, options, OPERATION)
        return Exit.DONE

    operation.command(act, name=verb, help=help_text)


for _verb, _help in (
    ("pause", "Stop an operation until it is resumed."),
    ("resume", "Go on with an operation."),
    ("cancel", "End an operation. What it has changed stays changed."),
    ("undo", "Take back what an operation changed."),
):
    _add_operation_verb(_verb, _help)


def audit(  # noqa: PLR0913 - the filters of the API
    *,
    actor: Annotated[str, Parameter(help="Who did it.")] = "",
    via: Annotated[str, Parameter(help="By what, such as api, cli, file or engine.")] = "",
    object_type: Annotated[str, Parameter(help="The kind of the object, such as schedule.")] = "",
    object_id: Annotated[str, Parameter(help="The id of the object.")] = "",
    action: Annotated[str, Parameter(help="What was done, such as schedule.paused.")] = "",
    since: Annotated[str, Parameter(name="--from", help="The beginning of a range.")] = "",
    until: Annotated[str, Parameter(name="--to", help="The end of a range.")] = "",
    options: List = LIST,
) -> None:
    """List the events of the audit log, newest first."""
    params = {"actor": actor, "via": via, "object_type": object_type, "object_id": object_id, "action": action}
    with options.connect() as connection:
        bounds = {"from": since, "to": until}
        show_list(lambda: connection.pages("/audit/", {**params, **bounds}, options.limit), options, AUDIT)


BREAKER = Shape(
    "breaker", columns("workflow_id", "workflow_name", "state", "failure_count", "opened_at"), "workflow_id"
)
Workflow = Annotated[str, Parameter(help="The id, the key or the name of the workflow.")]
Transitions = Annotated[int, Parameter(name="--limit", help="The number of transitions to show.")]
breaker = noun("breaker", "List, show and reset the circuit breakers of workflows.")
add_list(breaker, Resource(path="/breakers/", shape=BREAKER))


@breaker.command(name="get")
@breaker.default
def show_breaker(workflow: Workflow, /, *, limit: Transitions = 20, options: Print = PRINT) -> None:
    """Show the circuit breaker of a workflow with its latest transitions."""
    with options.connect() as connection:
        path = f"/breakers/{find_workflow(connection, workflow)}/"
        _print_breaker(lambda: connection.get(path), limit, options)


@breaker.command
def reset(workflow: Workflow, /, *, limit: Transitions = 20, options: Print = PRINT) -> None:
    """Close the circuit breaker of a workflow."""
    with options.connect() as connection:
        path = f"/breakers/{find_workflow(connection, workflow)}/reset/"
        _print_breaker(lambda: connection.call("POST", path), limit, options)


def _print_breaker(read: Callable[[], Any], limit: int, options: Printing) -> None:
    detail = read()
    detail["transitions"] = detail["transitions"][:limit]
    if options.form != "table":
        print_item(detail, options, BREAKER)
        return
    write(f"{breaker_summary(detail)}\n")
    for one in detail["transitions"]:
        write(f"  {one['at']}  {one['from_state']} -> {one['to_state']}  {printable(one['reason'])}\n")


def breaker_summary(detail: Mapping[str, Any]) -> str:
    """Return the state of a breaker as a sentence."""
    state = f"Workflow {detail['workflow_id']} ({printable(detail['workflow_name'])}): breaker {detail['state']}"
    if detail.get("breaker_threshold") is None:
        return f"{state}; it has no breaker_threshold, so it never opens."
    failures = f"{detail['failure_count']} of {detail['breaker_threshold']} consecutive failures"
    until = f", half-open from {detail['half_opens_at']}" if detail.get("half_opens_at") else ""
    return f"{state}, {failures}{until}."
