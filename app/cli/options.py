"""Options that many commands share: the server, the form of the output, the length of a list."""

import os
from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from app.client.connection import Connection
from app.client.contexts import Asked, find_target

FORMATS = ("table", "wide", "json", "jsonl", "yaml", "csv", "name")
Format = Literal["table", "wide", "json", "jsonl", "yaml", "csv", "name"]
Zone = Literal["UTC", "schedule", "local"]

CONNECTION = Group("Connection", sort_key=90)
OUTPUT = Group("Output", sort_key=80)

Flag = Annotated[bool, Parameter(negative="")]
Yes = Annotated[bool, Parameter(name=("--yes", "-y"), negative="", help="Do not ask.")]
Note = Annotated[str, Parameter(allow_leading_hyphen=True, help="A note for the history.")]


def _option(*names: str, group: Group, text: str) -> Parameter:
    return Parameter(name=names, group=group, help=text, negative="")


@dataclass(frozen=True, kw_only=True)
class Reaching:
    """Which server a command talks to."""

    server: Annotated[
        str, _option("--server", group=CONNECTION, text="The address of the server. Otherwise CARILLON_URL.")
    ] = ""
    token: Annotated[str, _option("--token", group=CONNECTION, text="The token. Otherwise CARILLON_TOKEN.")] = ""
    context: Annotated[
        str,
        _option(
            "--context", group=CONNECTION, text="A context that `carillon login` stored. Otherwise the current one."
        ),
    ] = ""

    def connect(self) -> Connection:
        """Return a connection to the server that options, environment or contexts name."""
        asked = self.asked
        if self.context and not self.server and os.environ.get("CARILLON_URL", "").strip():
            from app.cli.output import say

            say(f"CARILLON_URL is set and is used instead of the context {self.context}.")
        return Connection(find_target(asked, os.environ))

    @property
    def asked(self) -> Asked:
        """What the command line says about the server."""
        return Asked(server=self.server, token=self.token, context=self.context)


@dataclass(frozen=True, kw_only=True)
class Printing(Reaching):
    """How an object is printed."""

    output: Annotated[
        Format,
        _option("--output", "-o", group=OUTPUT, text="The form of the output; json and yaml are exactly the API's."),
    ] = "table"
    json: Annotated[bool, _option("--json", group=OUTPUT, text="The same as -o json.")] = False
    fields: Annotated[
        str, _option("--fields", group=OUTPUT, text="The fields to show, separated by commas, such as id,name.")
    ] = ""
    zone: Annotated[
        Zone, _option("--zone", group=OUTPUT, text="The timezone of times in tables: UTC, the schedule's, or your own.")
    ] = "UTC"

    @property
    def form(self) -> Format:
        """The form of the output."""
        return "json" if self.json else self.output

    @property
    def field_names(self) -> tuple[str, ...]:
        """The fields that `--fields` names."""
        return tuple(name for name in (part.strip() for part in self.fields.split(",")) if name)


@dataclass(frozen=True, kw_only=True)
class Showing(Printing):
    """How an object is printed, once or whenever it changes."""

    watch: Annotated[bool, _option("--watch", "-w", group=OUTPUT, text="Show it again when it changes.")] = False


@dataclass(frozen=True, kw_only=True)
class Listing(Showing):
    """How a list is printed, and how much of it."""

    sort: Annotated[
        str,
        Parameter(
            name="--sort",
            group=OUTPUT,
            allow_leading_hyphen=True,
            help="The field to sort by, with - before it for descending order.",
        ),
    ] = ""
    limit: Annotated[int, _option("--limit", group=OUTPUT, text="The number of items; 0 shows all of them.")] = 50


Reach = Annotated[Reaching, Parameter(name="*")]
Print = Annotated[Printing, Parameter(name="*")]
Show = Annotated[Showing, Parameter(name="*")]
List = Annotated[Listing, Parameter(name="*")]

REACH = Reaching()
PRINT = Printing()
SHOW = Showing()
LIST = Listing()
