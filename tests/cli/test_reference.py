"""docs/cli.md is written from the commands."""

from app.cli.reference import DOCUMENT, reference


def test_the_document_is_that_of_the_commands() -> None:
    """After a change of a command or an option: make cli-docs."""
    assert DOCUMENT.read_text(encoding="utf-8") == reference()


def test_every_argument_is_explained() -> None:
    """No row of a table is without words."""
    assert [] == [line for line in reference().splitlines() if line.startswith("| `") and line.endswith("|  |")]
