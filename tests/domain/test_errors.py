"""The errors that callers can act on (`app.domain.errors`)."""

import pytest

from app.domain.errors import CarillonError, ConflictError
from app.services.declarations.files import BadFileError
from app.services.validation import MalformedError


def all_errors(kind: type[CarillonError] = CarillonError) -> list[type[CarillonError]]:
    """Return an error class and all classes below it."""
    return [kind, *(found for child in kind.__subclasses__() for found in all_errors(child))]


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_every_error_has_a_code_and_a_message_of_its_own(kind: type[CarillonError]) -> None:
    """The message is a sentence that stands in the class, not in its docstring."""
    assert {MalformedError, BadFileError} < set(all_errors())
    assert kind.code
    assert kind.__dict__["message"].endswith(".")


def test_a_precise_text_replaces_the_message() -> None:
    """Without one, the message of the class is the text."""
    assert "The name is taken." == str(ConflictError("The name is taken."))
    assert ConflictError.message == str(ConflictError())
