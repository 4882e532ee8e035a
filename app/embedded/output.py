"""What ``carillon up`` prints: its own lines, and its children's lines behind an aligned prefix."""

import contextlib
import io
import sys

from rich.console import Console
from rich.text import Text

PREFIX_WIDTH = 8
STYLES = {"postgres": "blue", "valkey": "magenta", "migrate": "yellow", "api": "green", "worker": "cyan"}


class QuietableConsole(Console):
    """A console that falls silent when its reader has gone; the work goes on."""

    def on_broken_pipe(self) -> None:
        """Do what rich does, except for ending the process."""
        with contextlib.suppress(SystemExit):
            super().on_broken_pipe()


class Output:
    """One line per event, in colour on a terminal, plain elsewhere."""

    def __init__(self, console: Console) -> None:
        """Print on this console."""
        self._console = console

    @property
    def is_terminal(self) -> bool:
        """Whether a person is watching."""
        return self._console.is_terminal

    def say(self, text: str, style: str = "") -> None:
        """Print a line of our own."""
        self._print(Text(text, style=style))

    def relay(self, name: str, line: str) -> None:
        """Print a child's line; colours that it chose stay."""
        prefix = (f"{name:<{PREFIX_WIDTH}} | ", STYLES.get(name, "white"))
        self._print(Text.assemble(prefix, Text.from_ansi(line)))

    def _print(self, text: Text) -> None:
        try:
            # Soft-wrapped: a line stays one line, however wide, and can be searched for.
            self._console.print(text, soft_wrap=True)
        except OSError:
            # The terminal is gone; the signal that says so is under way.
            self._console.quiet = True


def standard_output() -> Output:
    """Our own standard output. What its encoding lacks is escaped: a child's odd letter must not stop us."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    return Output(QuietableConsole(file=sys.stdout, highlight=False))
