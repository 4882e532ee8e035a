"""``carillon workflow``: definitions of what schedules run."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from app.cli import names
from app.cli.fields import File, Sets, assignments, read_fields
from app.cli.interaction import confirm
from app.cli.lookup import find_workflow
from app.cli.options import LIST, PRINT, REACH, SHOW, List, Print, Reach, Show, Yes
from app.cli.output import Shape, columns, print_item, printable, say, show_item, show_list, write
from app.cli.resources import SHOWN_ONLY, Resource, edit_object
from app.cli.schedules import newer
from app.client.connection import Page, path_part
from app.client.errors import ClientError, Exit

WORKFLOW = Resource(
    path="/workflows/",
    shape=Shape("workflow", columns("id", "name", "active", "steps", "key", wide=("labels", "updated_at"))),
    read_only=SHOWN_ONLY,
)
Name = Annotated[str, Parameter(completer=names.workflows, help="The id, the key or the name.")]


def list_workflows(*, options: List = LIST) -> None:
    """List workflows, newest first."""
    with options.connect() as connection:

        def fetch() -> Iterable[Page]:
            pages = connection.pages("/workflows/", {}, options.limit)
            return (Page([_with_steps(item, options.form) for item in page.items], page.members) for page in pages)

        show_list(fetch, options, WORKFLOW.shape)


def _with_steps(workflow: Any, form: str) -> Any:
    """Add how many nodes a workflow has, for tables only."""
    return {**workflow, "steps": len(workflow["nodes"])} if form in {"table", "wide", "csv"} else workflow


def get(name: Name, /, *, options: Show = SHOW) -> None:
    """Show one workflow."""
    with options.connect() as connection:
        workflow_id = find_workflow(connection, name)
        show_item(lambda: connection.get(f"/workflows/{workflow_id}/"), options, WORKFLOW.shape)


def create(
    name: Annotated[str, Parameter(help="The name; the file may have it.")] = "",
    /,
    *,
    key: Annotated[str, Parameter(help="A key; if a workflow has it, that one is changed instead.")] = "",
    sets: Sets = None,
    file: File = None,
    options: Print = PRINT,
) -> None:
    """Create a workflow from a file with its nodes and edges."""
    given = {field: value for field, value in (("name", name), ("key", key)) if value}
    body = {**read_fields(file), **given, **assignments(sets)}
    if not body.get("nodes"):
        raise ClientError("The workflow has no nodes.", Exit.BAD_INPUT, hint="Give a file with -f.")
    with options.connect() as connection:
        if key:
            made = connection.call("PUT", f"/workflows/by-key/{path_part(key)}/", body)
        else:
            made = connection.call("POST", "/workflows/", body)
    print_item(made, options, WORKFLOW.shape)


def edit(name: Name, /, *, sets: Sets = None, file: File = None, yes: Yes = False, options: Print = PRINT) -> None:
    """Change a workflow in an editor, by --set or by a file."""
    given = {**read_fields(file), **assignments(sets)}
    with options.connect() as connection:
        workflow_id = find_workflow(connection, name)
        edit_object(connection, WORKFLOW, str(workflow_id), given, yes=yes, options=options)


def validate(*, file: File, options: Print = PRINT) -> int:
    """Check a workflow without storing it. The exit code is 2 if it has errors."""
    body = read_fields(file)
    with options.connect() as connection:
        answer = newer(lambda: connection.call("POST", "/workflows/validate/", body), "the check of workflows")
    if options.form != "table":
        print_item(answer, options, WORKFLOW.shape)
    else:
        for error in answer["errors"]:
            place = " ".join(str(error[part]) for part in ("node", "field") if error.get(part))
            say(f"{printable(place or 'workflow')}: {printable(error['message'])}")
        say("The workflow is valid." if answer["valid"] else "The workflow is not valid.")
    return Exit.DONE if answer["valid"] else Exit.BAD_INPUT


def graph(
    name: Name,
    /,
    *,
    output: Annotated[
        Literal["mermaid", "dot", "text"], Parameter(name=("--output", "-o"), help="The language.")
    ] = "text",
    options: Reach = REACH,
) -> None:
    """Print the nodes and edges of a workflow as a graph."""
    with options.connect() as connection:
        workflow = connection.get(f"/workflows/{find_workflow(connection, name)}/")
    write({"mermaid": as_mermaid, "dot": as_dot, "text": as_text}[output](workflow))


def as_mermaid(workflow: Mapping[str, Any]) -> str:
    """Return a workflow as a flowchart of Mermaid; nodes have numbers, because ids may have any character."""
    numbers = {node["id"]: f"n{index}" for index, node in enumerate(workflow["nodes"])}
    nodes = [
        f'  {numbers[node["id"]]}["{_escaped(node["id"])}<br/>{_escaped(node["type"])}"]' for node in workflow["nodes"]
    ]
    edges = [f"  {numbers[edge['from']]} --> {numbers[edge['to']]}" for edge in workflow["edges"]]
    return "\n".join(["flowchart TD", *nodes, *edges]) + "\n"


def _escaped(text: str) -> str:
    return printable(text).replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


def as_dot(workflow: Mapping[str, Any]) -> str:
    """Return a workflow in the language of Graphviz."""
    nodes = [
        f"  {_quoted(node['id'])} [label={_quoted(node['id'] + ' (' + node['type'] + ')')}];"
        for node in workflow["nodes"]
    ]
    edges = [f"  {_quoted(edge['from'])} -> {_quoted(edge['to'])};" for edge in workflow["edges"]]
    return "\n".join(["digraph workflow {", *nodes, *edges, "}"]) + "\n"


def _quoted(text: str) -> str:
    return '"' + printable(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def as_text(workflow: Mapping[str, Any]) -> str:
    """Return one line for each node: its type, and the nodes that come next."""
    following: dict[str, list[str]] = {}
    for edge in workflow["edges"]:
        following.setdefault(edge["from"], []).append(edge["to"])
    lines = []
    for node in workflow["nodes"]:
        after = ", ".join(following.get(node["id"], ()))
        lines.append(printable(f"{node['id']} ({node['type']})" + (f" -> {after}" if after else "")))
    return "\n".join(lines) + "\n"


def delete(name: Name, /, *, yes: Yes = False, options: Print = PRINT) -> None:
    """Delete a workflow and its schedules. It asks first if it has schedules."""
    with options.connect() as connection:
        workflow_id = find_workflow(connection, name)
        found = connection.get("/schedules/", {"workflow_id": workflow_id, "limit": 1})
        if found["items"]:
            confirm(f"Delete workflow {printable(name)} and its {found['total']:,} schedules?", yes=yes)
        connection.call("DELETE", f"/workflows/{workflow_id}/")
    say(f"Deleted workflow {workflow_id}.")
