"""How the log names what a line is about. Its slot follows from the execution's id."""

from uuid import UUID


def names(schedule: UUID | None = None, execution: UUID | None = None) -> dict[str, str]:
    """The fields of a line, as far as they apply: what an entity runs has no schedule."""
    found = {"schedule": schedule, "execution": execution}
    return {name: str(value) for name, value in found.items() if value is not None}
