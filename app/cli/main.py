"""The ``carillon`` command: its subcommands, which are imported when they are called, and how errors are printed."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper

from cyclopts import App, Group, Parameter

from app.client.errors import ClientError, Exit

FAILED = 1
BAD_INPUT = 2
# Their tracebacks belong into the log of the operator.
PROCESSES = {"up", "api", "worker", "operator", "migrate"}
# Options that may stand before the noun, too; those of the second set have no value.
LEADING = {"--server", "--token", "--context", "--output", "-o", "--zone", "--fields"}
LEADING_FLAGS = {"--json", "--watch", "-w"}

OBJECTS = Group("Objects", sort_key=1)
FILES = Group("Files", sort_key=2)
SERVER = Group("Server and login", sort_key=3)
RUNNING = Group("Processes", sort_key=4)


def _version() -> str:
    from importlib.metadata import version

    return version("carillon")


def _shown_default(value: object) -> str | None:
    """Return a default as the help shows it; that nothing is given or switched on needs no words."""
    return None if value in ("", False, None) else str(value)


app = App(
    name="carillon",
    help="Run workflows on a schedule, over HTTP. Postgres decides, Redis rings the bell.\n\n"
    "Commands talk to a server: that of --server, CARILLON_URL, --context, the current context (`carillon login`), "
    "or a `carillon up` on this machine. Exit codes: 0 done, 1 failed or unreachable, 2 bad input, 3 not found, "
    "4 not allowed, 5 conflict or wrong state, 6 the awaited run failed, 7 timed out, 8 `plan` found changes, "
    "130 interrupted.",
    help_format="plaintext",
    default_parameter=Parameter(show_default=_shown_default),
    version=_version,
    suppress_keyboard_interrupt=False,
    result_action="return_value",
)


def _noun(name: str, help_text: str, alias: str | None = None) -> App:
    """Add a noun, whose verbs are imported when they are called."""
    noun = App(name=name, help=help_text, group=OBJECTS, help_format="plaintext", alias=alias)
    app.command(noun)
    return noun


schedule = _noun("schedule", "List, show, create and change schedules.", "s")
_READS = "app.cli.schedules"
_CHANGES = "app.cli.schedule_changes"
for _verb, _function, _help in (
    ("list", f"{_READS}:list_schedules", "List schedules, newest first."),
    ("get", f"{_READS}:get", "Show one schedule."),
    ("create", f"{_CHANGES}:create", "Create a schedule from options, from a file, or from both."),
    ("edit", f"{_CHANGES}:edit", "Change a schedule in an editor, by --set or by a file, after its plan was shown."),
    ("pause", f"{_CHANGES}:pause", "Pause schedules. Nothing fires until they are resumed."),
    ("resume", f"{_CHANGES}:resume", "Resume paused schedules."),
    ("revive", f"{_CHANGES}:revive", "Make dead schedules active again, with all their retries."),
    ("run", f"{_CHANGES}:run", "Run schedules now. Their cadence and counters do not change."),
    ("explain", f"{_READS}:explain", "Say why a schedule did or did not run at a time."),
    ("preview", f"{_READS}:preview", "Describe a timing in plain words, with its next runs."),
    ("upcoming", f"{_READS}:upcoming", "List the runs to come, of one schedule or of all of them."),
    ("slots", f"{_READS}:slots", "List the slots of a schedule, newest first: what became of each."),
    ("history", f"{_READS}:history", "List the changes of a schedule, newest first."),
    ("plan", f"{_CHANGES}:plan", "Show what a change would do to the coming runs."),
    ("backfill", f"{_CHANGES}:backfill", "Run the slots of a past range."),
    ("skip", f"{_CHANGES}:skip", "Skip coming slots of a schedule, or take that back."),
    ("delete", f"{_CHANGES}:delete", "Delete schedules and their history."),
):
    schedule.command(_function, name=_verb, help=_help)

run = _noun("run", "List, show, watch, cancel and repeat runs.", "r")
run.command("app.cli.runs:list_runs", name="list", help="List runs, newest first.")
run.command("app.cli.runs:get", help="Show one run with the result of each node.")
run.command("app.cli.runs:watch", help="Wait for the end of a run. The exit code is 6 if it failed.")
run.command("app.cli.runs:cancel", help="Cancel a run.")
run.command("app.cli.runs:again", help="Run it again with the same payload.")

workflow = _noun("workflow", "List, show, create and change workflows.", "w")
for _verb, _function, _help in (
    ("list", "list_workflows", "List workflows, newest first."),
    ("get", "get", "Show one workflow."),
    ("create", "create", "Create a workflow from a file with its nodes and edges."),
    ("edit", "edit", "Change a workflow in an editor, by --set or by a file."),
    ("validate", "validate", "Check a workflow without storing it. The exit code is 2 if it has errors."),
    ("graph", "graph", "Print the nodes and edges of a workflow as a graph."),
    ("delete", "delete", "Delete a workflow and its schedules."),
):
    workflow.command(f"app.cli.workflows:{_function}", name=_verb, help=_help)

load = _noun("load", "Show the load of the past and of the future, and spread it.")
load.command("app.cli.load:show", help="Show how many slots fired and how late, by steps of time.")
load.command("app.cli.load:forecast", help="Show how many runs are to come, with the peak and the quiet times.")
load.command("app.cli.load:spread", help="Propose changes that spread the runs.")
load.command("app.cli.load:capacity", help="Show what a rate of fires needs in cores, WAL and disk.")

app.command(
    "app.cli.constraints:calendar",
    group=OBJECTS,
    help="Manage calendars, whose days schedules leave out or keep to.",
)
app.command("app.cli.constraints:limit", group=OBJECTS, help="Manage limits on the rate and the number of runs.")
app.command("app.cli.leases:lease", group=OBJECTS, help="Grant agents bounded rights, and take them back.")
for _name, _help in (
    ("notification", "Manage notifications of events."),
    ("webhook", "Manage webhooks."),
    ("team", "Manage teams."),
    ("secret", "Manage secrets. Their values are never shown."),
    ("session", "List and end the sessions of browsers."),
    ("operation", "List, stop and undo operations on many schedules."),
    ("breaker", "List, show and reset the circuit breakers of workflows."),
    ("audit", "List the events of the audit log, newest first."),
):
    app.command(f"app.cli.resources:{_name}", group=OBJECTS, help=_help)
app.command("app.cli.accounts:user", group=OBJECTS, help="Manage users.")
app.command("app.cli.accounts:token", group=OBJECTS, help="Manage API tokens.")
keys = _noun("keys", "Manage the keys that sign the tokens of calls.")
importing = App(
    name="import",
    help="Convert schedules of other tools into YAML that `carillon apply` reads.\n\n"
    "What has no counterpart is named on stderr, with its line. Exit codes: 0 done, 2 something was left out or the "
    "file cannot be read.",
    group=FILES,
    help_format="plaintext",
)
app.command(importing)
# The help is here because `carillon --help` does not import the commands; docstrings have the help on parameters.
app.command(
    "app.cli.processes:up",
    group=RUNNING,
    help="Run the API and a worker on this machine, with embedded Postgres and Valkey unless their URLs are set.",
)
app.command("app.cli.processes:api", group=RUNNING, help="Serve the HTTP API.")
app.command("app.cli.processes:worker", group=RUNNING, help="Run schedules until stopped by SIGINT or SIGTERM.")
app.command(
    "app.cli.processes:operator",
    group=RUNNING,
    help="Apply the schedules and workflows that are objects of Kubernetes, until stopped by SIGINT or SIGTERM.",
)
app.command("app.cli.processes:migrate", group=RUNNING, help="Bring the database schema up to date.")
app.command(
    "app.cli.apply:apply",
    group=FILES,
    help="Create and change workflows and schedules as files declare them.\n\n"
    "Each file is applied as a whole or not at all. Paused schedules stay paused. Exit codes: 0 done, 1 the server or "
    "the database is unavailable, 2 a file has errors.",
)
app.command(
    "app.cli.apply:plan",
    group=FILES,
    help="Show what `carillon apply` would change. The exit code is 8 if something would change.",
)
app.command(
    "app.cli.apply:export",
    group=FILES,
    help="Write workflows and schedules as YAML that `carillon apply` reads.\n\n"
    "Applying the result unchanged changes nothing.",
)
app.command("app.cli.login:login", group=SERVER, help="Store a server and a token, and make it the current context.")
app.command("app.cli.login:logout", group=SERVER, help="Forget a context and its token.")
app.command("app.cli.login:context", group=SERVER, help="List and choose the servers that you are logged in to.")
app.command("app.cli.login:whoami", group=SERVER, help="Show which user you are, and what your token may do.")
app.command(
    "app.cli.login:request", group=SERVER, help="Send a request with your token, and print the answer as it is."
)
app.command("app.cli.doctor:doctor", group=SERVER, help="Check the server step by step, and say what to do.")
app.command(
    "app.cli.top:top", group=SERVER, help="Show rates, lateness, workers and what needs attention, each second."
)
app.command("app.cli.completion:completion", group=SERVER, help="Print the completion script of a shell.")
app.command(
    "app.cli.console_link:console",
    group=SERVER,
    help="Print a link that opens the console and logs you in. It works once, within ten minutes.",
)
app.command(
    "app.cli.mcp_bridge:mcp",
    group=SERVER,
    help="Connect an agent's client to the server over standard input and output.",
)
app.command(
    "app.cli.admin:plugins",
    group=RUNNING,
    help="List the installed plugins and their errors. The exit code is 1 if there are errors.",
)
importing.command("app.cli.imports:crontab", help="Convert a crontab.")
importing.command("app.cli.imports:cronjob", help="Convert Kubernetes CronJobs.")
importing.command("app.cli.imports:ductile", help="Convert the schedules of Ductile's plugins.")
keys.command("app.cli.admin:rotate_keys", name="rotate", help="Publish a new key, which signs a day later.")


def main() -> None:
    """Run the command of the command line, and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal that cannot show a character gets another one instead.
            stream.reconfigure(errors="replace")
    sys.exit(run_command(sys.argv[1:]))


def run_command(words: Sequence[str]) -> int:
    """Run a command and return its exit code. Errors are printed as lines, without a traceback."""
    try:
        result = app(reordered(words))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except (BrokenPipeError, SystemExit) as error:
        return _exit_code_of(error)
    except ClientError as error:
        print_errors([f"carillon: {error.message}", *(f"  {line}" for line in error.lines)])
        print_hint(error.hint)
        return error.code
    except Exception as error:
        if words and words[0] in PROCESSES and not _is_expected(error):
            raise
        return _report(error)
    return result if isinstance(result, int) else Exit.DONE


def _exit_code_of(error: BrokenPipeError | SystemExit) -> int:
    """Return the code of an exit; a reader of stdout that is gone is no error."""
    if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
        return error.code if isinstance(error.code, int) else int(bool(error.code))
    # Rich exits after a broken pipe.
    _discard_output()
    return Exit.DONE


def _is_expected(error: Exception) -> bool:
    from app.config import SettingsError
    from app.domain.errors import CarillonError

    return isinstance(error, SettingsError | CarillonError)


def _report(error: Exception) -> int:
    """Print an error of the settings or of a service, or a defect, and return the exit code."""
    from app.config import SettingsError

    if _is_expected(error):
        print_errors([f"carillon: {error}"])
        return BAD_INPUT if isinstance(error, SettingsError) else FAILED
    if os.environ.get("CARILLON_DEBUG"):
        raise error
    print_errors([f"carillon: {type(error).__name__}: {' '.join(str(error).split())}"])
    print_hint(
        "The server's answer is not what this command expects, or the command has a defect. `carillon doctor` compares "
        "their versions; CARILLON_DEBUG=1 shows where it happened."
    )
    return FAILED


def _discard_output() -> None:
    """Let the interpreter's last flush go nowhere: the reader of stdout is gone."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def reordered(words: Sequence[str]) -> list[str]:
    """Return the words with options that stand before the command moved behind it."""
    index = 0
    leading: list[str] = []
    while index < len(words):
        name = words[index].partition("=")[0]
        if name in LEADING_FLAGS or (name in LEADING and "=" in words[index]):
            taken = 1
        elif name in LEADING:
            taken = 2
        else:
            break
        leading += words[index : index + taken]
        index += taken
    rest = list(words[index:])
    end = rest.index("--") if "--" in rest else len(rest)
    return [*rest[:end], *leading, *rest[end:]]


@contextmanager
def exit_on_bad_input() -> Iterator[None]:
    """Print an error of the input and exit with code 2. If the database is unavailable, retrying helps: code 1."""
    from app.domain.errors import CarillonError, UnavailableError

    try:
        yield
    except UnavailableError:
        raise
    except CarillonError as error:
        print_errors([f"carillon: {error}"])
        sys.exit(BAD_INPUT)


def print_errors(messages: list[str]) -> None:
    """Print one line for each message on stderr, in red on a terminal."""
    is_red = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    for message in messages:
        text = "".join(one if one.isprintable() or one == "\t" else "\N{REPLACEMENT CHARACTER}" for one in message)
        sys.stderr.write(f"\x1b[31m{text}\x1b[0m\n" if is_red else f"{text}\n")
    sys.stderr.flush()


def print_hint(hint: str) -> None:
    """Print what the user can do next."""
    if hint:
        sys.stderr.write(f"  {hint}\n")
