"""``python -m app.cli.reference``: writes docs/cli.md from the commands themselves."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cyclopts import App

from app.cli.main import FILES, OBJECTS, RUNNING, SERVER, app

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"
# Options of many commands: described once.
COMMON = ("Output", "Connection")
HEADING = """\
# The command line

<!-- Written by `python -m app.cli.reference`; a test compares it with the commands. -->

`carillon NOUN VERB` talks to a server over HTTP, as the user of a token: what you may do is what the API allows you,
and the history names you. `carillon NOUN VERB --help` shows what is below.

```console
$ carillon login https://carillon.example.com      # asks for a token, and stores both
$ carillon schedule create report --workflow invoices --cron '0 6 * * 1-5' --timezone Europe/Berlin
$ carillon schedule list -l team=shop --health failing
$ carillon schedule explain report --at 2030-01-31T05:00:00Z
$ carillon schedule pause --filter 'status=active,label=team=shop' --note 'shop moves'   # says how many, and asks
$ carillon schedule run report --wait && echo it works
$ carillon plan -f schedules/ || carillon apply -f schedules/
```

## Which server

The first of these that names one:
1. `--server` and `--token`, which may stand before the noun too;
2. `CARILLON_URL` and `CARILLON_TOKEN`;
3. `--context`, a server that `carillon login` stored under that name;
4. the current context, which `carillon context use NAME` changes;
5. a `carillon up` that runs on the data folder of this machine (`CARILLON_DATA_DIR`), with its admin token.

Contexts are in `$XDG_CONFIG_HOME/carillon/config.toml` (`~/.config` by default), which only its owner can read. The
token of a context goes to the server of that context only. `SSL_CERT_FILE` names a certificate authority of your own.

`user create`, `token create`, `apply`, `plan` and `export` write to the database itself with `--database`, or where
`CARILLON_DATABASE_URL` is set and no server is named: before there is a token, nothing else works. `keys` and
`migrate` always do.

## Names, output, exit codes

A schedule is named by its id, the beginning of its id, its key or its name. A name or a beginning
that several have is not guessed: the exit code is 2, and the candidates are listed.

| option | meaning |
|---|---|
| `-o table`, `wide` | for people: the width of the terminal, colours on a terminal only (`NO_COLOR` turns them off) |
| `-o json`, `jsonl`, `yaml` | exactly what the API answers; `jsonl` has an object on each line |
| `-o csv`, `name` | the columns of the table with the API's values; `schedule/ID` |
| `--fields id,name` | only these fields |
| `--sort -created_at` | the order; `-` is descending |
| `--limit 50` | how many; 0 streams all, the first rows at once |
| `--zone UTC`, `schedule`, `local` | the timezone of times in tables |
| `-w`, `--watch` | again whenever something changes: on a terminal the whole, in a pipe each changed object |

Data goes to stdout, words and progress to stderr. An error names the field and what to do next. What Ctrl-C interrupts
says what was done before it, and what goes on without it. On a terminal that is too narrow a table cuts ids, whose
beginning is enough to find a schedule, and long texts; columns that still do not fit are left out.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | failed, or the server cannot be reached |
| 2 | bad input |
| 3 | not found |
| 4 | not allowed: no token, a wrong one, or one that does not reach far enough |
| 5 | a conflict, or a state that does not allow it |
| 6 | the awaited run failed |
| 7 | timed out |
| 8 | `plan` found changes |
| 130 | interrupted by Ctrl-C |

## Completion

`carillon completion bash > ~/.local/share/bash-completion/completions/carillon`, and likewise for `zsh`, `fish` and
`powershell`. Names of schedules and workflows are asked from the server and kept for 30 seconds.
"""


def reference() -> str:
    """Return the document."""
    sections = [HEADING]
    for group in (OBJECTS, FILES, SERVER, RUNNING):
        sections.append(f"## {group.name}\n")
        sections += [_section(path, command) for path, command in _commands(app, "carillon", group.name)]
    return "\n".join(sections)


def _commands(parent: App, prefix: str, group: str = "") -> Iterator[tuple[str, App]]:
    """Yield the commands of an app in the order of their names, and those below them."""
    names: dict[int, str] = {}
    for name, command in parent.resolved_commands().items():
        # An alias comes after the name.
        names.setdefault(id(command), name)
    for name in sorted(names.values()):
        if name.startswith("-") or (group and group not in _groups(parent, name)):
            continue
        command = parent[name]
        shown = f"{prefix} {name}"
        below = list(_commands(command, shown))
        if not below or command.default_command is not None:
            yield shown, command
        yield from below


def _groups(parent: App, name: str) -> list[str]:
    command: Any = parent._commands[name]  # noqa: SLF001 - a lazy command has its group here, and no accessor
    groups = command.group if isinstance(command.group, tuple | list) else (command.group,)
    return [getattr(one, "name", str(one)) for one in groups]


def _section(path: str, command: App) -> str:
    arguments = [
        one for one in command.assemble_argument_collection(parse_docstring=True) if one.show and not _is_common(one)
    ]
    positional = " ".join(_positional(one) for one in arguments if one.index is not None)
    rows = [_row(one) for one in arguments]
    table = ["", "| argument | meaning |", "|---|---|", *rows] if rows else []
    text = " ".join(command.help.split("\n\n")[0].split())
    return "\n".join([f"### `{path}{' ' + positional if positional else ''}`", "", text, *table]) + "\n"


def _is_common(argument: Any) -> bool:
    return any(getattr(group, "name", group) in COMMON for group in argument.parameter.group or ())


def _positional(argument: Any) -> str:
    name = argument.name.removeprefix("--").lstrip("*").upper().replace("-", "_")
    several = "..." if argument.field_info.kind is argument.field_info.VAR_POSITIONAL else ""
    return f"{name}{several}" if argument.required else f"[{name}{several}]"


def _row(argument: Any) -> str:
    if argument.index is not None:
        names = f"`{_positional(argument).strip('[]')}`"
    else:
        names = ", ".join(f"`{name}`" for name in argument.names)
    choices = argument.get_choices() or ()
    text = " ".join((argument.parameter.help or "").split())
    text += f" One of {', '.join(f'`{one}`' for one in choices)}." if choices else ""
    default = argument.field_info.default
    if argument.required and argument.index is None:
        text += " Required."
    elif isinstance(default, str | int | float) and not isinstance(default, bool) and default != "":
        text += f" Default: `{default}`."
    return f"| {names} | {text.strip().replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    DOCUMENT.write_text(reference(), encoding="utf-8")
