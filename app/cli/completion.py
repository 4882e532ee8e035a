"""``carillon completion``: the script that completes commands, options and names in a shell."""

from typing import Annotated, Literal

from cyclopts import Parameter

from app.cli.output import write


def completion(shell: Annotated[Literal["bash", "zsh", "fish", "powershell"], Parameter(help="The shell.")], /) -> None:
    """Print the completion script of a shell, such as for `source <(carillon completion bash)`."""
    from app.cli.main import app

    write(app.generate_completion(shell=shell) + "\n")
