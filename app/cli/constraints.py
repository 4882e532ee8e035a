"""``carillon calendar`` and ``carillon limit``: on which days runs happen, and how many of them."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from app.cli.fields import File, Sets, assignments, read_fields, read_text
from app.cli.options import PRINT, Print
from app.cli.output import Shape, columns, print_item
from app.cli.resources import SHOWN_ONLY, Resource, add_delete, add_edit, add_get, add_list, noun

CALENDAR = Resource(
    path="/calendars/",
    shape=Shape("calendar", columns("name", "timezone", "public", "holidays", "dates", wide=("updated_at",)), "name"),
    id_field="name",
)
LIMIT = Resource(
    path="/limits/",
    shape=Shape(
        "limit",
        columns("name", "max_concurrent", "rate", "burst", "held", "waiting", wide=("public", "updated_at")),
        "name",
    ),
    id_field="name",
    read_only=SHOWN_ONLY | {"name", "held", "waiting"},
)
Public = Annotated[bool | None, Parameter(negative="", help="Let every user name it.")]

calendar = noun("calendar", "Manage calendars, whose days schedules leave out or keep to.")
limit = noun("limit", "Manage limits on the rate and the number of runs.")
for _noun, _resource in ((calendar, CALENDAR), (limit, LIMIT)):
    for _add in (add_list, add_get, add_edit, add_delete):
        _add(_noun, _resource)


@calendar.command(name="create")
def create_calendar(  # noqa: PLR0913 - the fields of a calendar
    name: Annotated[str, Parameter(help="The name; the file may have it.")] = "",
    /,
    *,
    date: Annotated[
        list[str] | None,
        Parameter(
            negative=(),
            allow_leading_hyphen=True,
            help="A day, a range such as 2030-12-24/2030-12-26, or a day of each year, --05-01; may be repeated.",
        ),
    ] = None,
    holidays: Annotated[str, Parameter(help="The public holidays of a country or a part of it, such as DE-BE.")] = "",
    ics: Annotated[Path | None, Parameter(allow_leading_hyphen=True, help="An iCalendar file; - is stdin.")] = None,
    timezone: Annotated[str, Parameter(help="The timezone of its days, such as Europe/Berlin.")] = "",
    public: Public = None,
    sets: Sets = None,
    file: File = None,
    options: Print = PRINT,
) -> None:
    """Create a calendar from options, from a file, or from both."""
    given = {"dates": date, "holidays": holidays, "timezone": timezone, "public": public}
    given["ics"] = read_text(ics) if ics else None
    _create(CALENDAR, {"name": name, **given}, sets, file, options)


@limit.command(name="create")
def create_limit(  # noqa: PLR0913 - the fields of a limit
    name: Annotated[str, Parameter(help="The name; the file may have it.")] = "",
    /,
    *,
    max_concurrent: Annotated[int | None, Parameter(help="The number of runs at the same time.")] = None,
    rate: Annotated[str, Parameter(help="The number of runs that start in a time, such as 10/m.")] = "",
    burst: Annotated[int | None, Parameter(help="The number of runs that start at once after a quiet time.")] = None,
    public: Public = None,
    sets: Sets = None,
    file: File = None,
    options: Print = PRINT,
) -> None:
    """Create a limit from options, from a file, or from both."""
    given = {"name": name, "max_concurrent": max_concurrent, "rate": rate, "burst": burst, "public": public}
    _create(LIMIT, given, sets, file, options)


def _create(resource: Resource, given: dict[str, Any], sets: Sets, file: File, options: Print) -> None:
    """Create an object from a file, from options, which come before it, and from --set."""
    fields = {name: value for name, value in given.items() if value is not None and value != ""}
    with options.connect() as connection:
        made = connection.call("POST", resource.path, {**read_fields(file), **fields, **assignments(sets)})
    print_item(made, options, resource.shape)
