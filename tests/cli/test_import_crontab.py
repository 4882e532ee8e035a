"""``carillon import crontab``: lines as the manuals of cron implementations show them, and what becomes of each.

Covers app.services.imports.crontab, app.services.imports.cron_timing, app.services.imports.conversion.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, reject
from hypothesis import strategies as st

from app.domain.cron_expression import canonical_cron
from app.domain.errors import CarillonError
from app.domain.specs import Spec, canonical
from app.services.declarations.files import Source, read_file
from app.services.declarations.yaml_text import write_documents
from app.services.imports.conversion import Import, Target, declare
from app.services.imports.crontab import CrontabOptions, read_crontab, split_at_percent
from tests.domain.strategies import aliases, expressions, sparse_expressions, zones
from tests.support.declarations import CATALOG
from tests.support.hypothesis_examples import examples

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def converted(text: str, *, timezone: str | None = "UTC", system: bool = False, workflow: str | None = None) -> Import:
    """Convert a crontab of a machine in this timezone."""
    conversion = read_crontab(text, CrontabOptions(system=system, timezone=timezone))
    return declare(conversion, Target("crontab", workflow), NOW)


def schedules(result: Import) -> list[dict[str, Any]]:
    """Return the declared schedules."""
    declared: list[dict[str, Any]] = (result.document or {}).get("schedules", [])
    return declared


def messages(result: Import) -> list[str]:
    """Return the notices with their lines."""
    return [f"{notice.line}: {notice.message}" for notice in result.notices]


def times(spec: dict[str, Any], number: int = 20) -> list[datetime]:
    """Return the first slots of a spec, counted from a fixed moment."""
    slots = Spec(**canonical({name: spec[name] for name in ("cron", "every", "timezone") if name in spec})).slots(NOW)
    found: list[datetime] = []
    while len(found) < number and (slot := slots.next(found[-1] if found else NOW)) is not None:
        found.append(slot)
    return found


class Line(msgspec.Struct, frozen=True):
    """A line of a manual: whose it is, the time and the command that it becomes, or a part of the reason against it."""

    source: str
    text: str
    time: str = ""
    command: str = ""
    more: dict[str, Any] = {}
    payload: dict[str, Any] = {}
    reason: str = ""
    system: bool = False


SIX = "more than five fields"
LINES = [
    # Vixie, Debian, ISC.
    Line(
        "vixie",
        "5 0 * * *       $HOME/bin/daily.job >> $HOME/tmp/out 2>&1",
        "5 0 * * *",
        "$HOME/bin/daily.job >> $HOME/tmp/out 2>&1",
    ),
    Line("vixie", "15 14 1 * *     $HOME/bin/monthly", "15 14 1 * *", "$HOME/bin/monthly"),
    Line(
        "vixie",
        """0 22 * * 1-5    mail -s "It's 10pm" joe%Joe,%%Where are your kids?%""",
        "0 22 * * 1-5",
        """mail -s "It's 10pm" joe""",
        payload={"stdin": "Joe,\n\nWhere are your kids?\n"},
    ),
    Line(
        "vixie",
        '23 0-23/2 * * * echo "run 23 minutes after midn, 2am, 4am ..., everyday"',
        "23 0-23/2 * * *",
        'echo "run 23 minutes after midn, 2am, 4am ..., everyday"',
    ),
    Line("vixie", '5 4 * * sun     echo "run at 5 after 4 every sunday"', "5 4 * * sun", ""),
    Line(
        "debian",
        r'0 */4 1 * mon   echo "run every 4th hour on the 1st and on every Monday"',
        "0 */4 1 * mon",
    ),
    Line("debian", '0 0 */2 * sun   echo "run at midn on every Sunday that\'s an uneven date"', "0 0 */2 * sun"),
    Line(
        "debian",
        r"""0 4 8-14 * * test $(date +\%u) -eq 6 && echo "2nd Saturday" """,
        "0 4 8-14 * *",
        'test $(date +%u) -eq 6 && echo "2nd Saturday"',
    ),
    Line("debian", "@reboot sleep 60 && service nginx start", reason="@reboot names no time"),
    Line(
        "debian, system",
        "17 * * * * root cd / && run-parts --report /etc/cron.hourly",
        "17 * * * *",
        "cd / && run-parts --report /etc/cron.hourly",
        payload={"user": "root"},
        system=True,
    ),
    Line(
        "debian, system",
        "25 6 * * * root test -x /usr/sbin/anacron || ( cd / && run-parts --report /etc/cron.daily )",
        "25 6 * * *",
        payload={"user": "root"},
        system=True,
    ),
    Line("debian, system", "47 6\t* * 7\troot\trun-parts /etc/cron.weekly", "47 6 * * 7", system=True),
    # cronie.
    Line("cronie", "30 4 1,15 * 5 cmd", "30 4 1,15 * 5", "cmd"),
    Line("cronie", "@annually /usr/local/bin/yearly", "@annually"),
    Line(
        "cronie, system",
        "* * * * * root touch /tmp/file",
        "* * * * *",
        "touch /tmp/file",
        payload={"user": "root"},
        system=True,
    ),
    Line("cronie", "0-59 * * * * id -Z > /tmp/SystemHigh/crontest", "0-59 * * * *"),
    Line("cronie", "0~59 3 * * * backup", reason="'~' is a time that cron chooses"),
    Line("cronie, system", "-*/15 * * * * root test -x /usr/lib/cron/run-crons", "*/15 * * * *", system=True),
    # FreeBSD.
    Line("freebsd, system", "*/5\t*\t*\t*\t*\troot\t/usr/libexec/atrun", "*/5 * * * *", system=True),
    Line(
        "freebsd, system",
        "1,31\t0-5\t*\t*\t*\troot\tadjkerntz -a",
        "1,31 0-5 * * *",
        "adjkerntz -a",
        payload={"user": "root"},
        system=True,
    ),
    Line("freebsd", "@every_minute /usr/local/bin/poll", "* * * * *"),
    Line("freebsd", "@every_second /usr/local/bin/beat", "1s"),
    Line("freebsd", "@60 /usr/local/bin/after-the-last", "60s", more={"if_running": "skip"}),
    Line("freebsd", "0 0 * * * -n -q /bin/quiet --now", "0 0 * * *", "/bin/quiet --now"),
    # OpenBSD and NetBSD.
    Line("openbsd", "~ * * * * sleep 5", reason="'~' is a time that cron chooses"),
    Line("openbsd", "0~59/30 * * * * fetch", reason="'~' is a time that cron chooses"),
    Line(
        "openbsd", "*/10 * * * * -ns /usr/local/bin/sync", "*/10 * * * *", "/usr/local/bin/sync", {"if_running": "skip"}
    ),
    Line("netbsd", "? 3 * * * fetch", reason="The minute field cannot be '?'"),
    # Solaris and AIX.
    Line("solaris", "10 3 * * 0 /usr/sbin/logadm", "10 3 * * 0"),
    Line("solaris", "0 0 1,15 * 1 /usr/bin/report", "0 0 1,15 * 1"),
    Line("aix", "0 0 5,10 * * /usr/bin/find . -name core -atime +7 -exec rm {} ';'", "0 0 5,10 * *"),
    # BusyBox and dcron.
    Line("busybox", "*/2 * * * * run-parts /etc/periodic/15min", "*/2 * * * *"),
    Line("busybox", "0 5 1 JAN,Jul Mon halfyear", "0 5 1 JAN,Jul Mon", "halfyear"),
    # systemd-cron, fcron, anacron.
    Line("systemd-cron", "@quarterly /usr/bin/quarter", "0 0 1 1,4,7,10 *"),
    Line("systemd-cron", "@semi-annually /usr/bin/half", "0 0 1 1,7 *"),
    Line("systemd-cron", "@minutely /usr/bin/tick", "* * * * *"),
    Line("fcron", "%daily,mail * 19-21 echo easy", reason="fcrontab"),
    Line("fcron", "&bootrun,runas(me) 0 0 * * * backup", reason="fcrontab"),
    Line("fcron", "!mailto(root)", reason="fcrontab"),
    Line("fcron", "@12h02 fetchmail", reason="'@12h02' is not known"),
    Line("anacron", "1\t5\tcron.daily\tnice run-parts /etc/cron.daily", reason="anacrontab"),
    Line("anacron", "@monthly\t45\tcron.monthly\tnice run-parts /etc/cron.monthly", reason="anacrontab"),
    # robfig/cron, Kubernetes.
    Line("robfig", "30 3-6,20-23 * * * job", "30 3-6,20-23 * * *"),
    Line("robfig", "CRON_TZ=Asia/Tokyo 30 04 * * * job", "30 04 * * *", "job", {"timezone": "Asia/Tokyo"}),
    Line("robfig", "TZ=America/New_York 0 6 * * ? job", "0 6 * * ?", "job", {"timezone": "America/New_York"}),
    Line("robfig", "@every 1h30m10s job", "1h30m10s", "job"),
    Line("robfig", "@every 500ms job", reason="Expected a duration"),
    Line("robfig", "@midnight job", "@midnight"),
    Line("kubernetes", "0 3 * * 1 job", "0 3 * * 1"),
    # Quartz, Spring, AWS: other fields.
    Line("quartz", "0 0 12 * * ?", reason=SIX),
    Line("quartz", "0 0/5 14,18 * * ? job", reason=SIX),
    Line("quartz", "0 15 10 ? * MON-FRI", reason=SIX),
    Line("quartz", "0 15 10 ? * 6L 2002-2005", reason=SIX),
    Line("quartz", "0 15 10 ? * 6#3", reason=SIX),
    Line("spring", "*/10 * * * * * poll", reason=SIX),
    Line("aws", "cron(0 10 * * ? *)", reason="AWS"),
    Line("aws", "rate(5 minutes)", reason="AWS"),
    # Extensions of the fields.
    Line("nncron", "0 9 L * * invoice", "0 9 L * *"),
    Line("nncron", "0 9 * * 5L party", "0 9 * * 5L"),
    Line("nncron", "0 9 * * MON#1 standup", "0 9 * * MON#1"),
    Line("quartz days", "0 9 15W * * pay", reason="The day-of-month field cannot be '15w'"),
    # Jenkins.
    Line("jenkins", "H * * * * build", reason="'H' is a time that Jenkins chooses"),
    Line("jenkins", "H(0-29)/10 * * * * build", reason="'H' is a time that Jenkins chooses"),
    Line("jenkins", "H/15 8-18 * * 1-5 build", reason="'H' is a time that Jenkins chooses"),
    Line("jenkins", "30 8 4 7 * build", "30 8 4 7 *", "build"),
    # What no cron takes, or none can fire.
    Line("anyone", "0 0 30 2 * never", reason="No date fits the expression"),
    Line("anyone", "61 * * * * cmd", reason="The minute field cannot be '61'"),
    Line("anyone", "0 24 * * * cmd", reason="The hour field cannot be '24'"),
    Line("anyone", "* * * *", reason="expected five fields and a command"),
    Line("anyone", "* * * * *", reason="there is no command"),
    Line("anyone", "0 0 * * * root", reason="expected a user and a command", system=True),
    Line("anyone", "@fortnightly cmd", reason="'@fortnightly' is not known"),
    Line("anyone", "rm -rf / tmp x", reason="The minute field cannot be 'rm'"),
    Line("anyone", "*/0 * * * * cmd", reason="bad step"),
    Line("anyone", "0 0 * * * %only input", reason="there is no command"),
]


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line.source}: {line.text}"[:60])
def test_a_line_of_a_manual(line: Line) -> None:
    """It becomes a schedule with this time and command, or is left out for this reason."""
    result = converted(line.text, system=line.system)
    if line.reason:
        (notice,) = result.notices
        assert (None, True, True) == (result.document, notice.left_out, line.reason in notice.message), notice
        return
    (schedule,) = schedules(result)
    assert result.is_complete
    assert line.time == schedule.get("cron", schedule.get("every"))
    assert {"if_running": "allow", **line.more}.items() <= schedule.items()
    if line.command:
        assert line.command == schedule["trigger_payload"]["command"]
        assert {"command": line.command, **line.payload} == schedule["trigger_payload"]
    assert schedule["description"].endswith(schedule["trigger_payload"]["command"])
    file = read_file(Source("out.yaml", write_documents([result.document]).encode()), CATALOG)
    assert () == file.problems


def test_there_are_enough_lines() -> None:
    """Of many implementations, and none twice."""
    assert len({line.text for line in LINES}) == len(LINES) >= 40
    assert len({line.source for line in LINES}) >= 15


RANDOM_DELAY = (
    "RANDOM_DELAY becomes `jitter_seconds`: another delay for each run, where cron keeps one until it is restarted."
)
WHOLE = """\
# m h  dom mon dow   command
SHELL=/bin/sh
MAILTO=paul
  PATH = "/usr/bin:/bin "
'QUOTED'='it''s'

# Two lines about it:
# every night.
5 0 * * * nightly
CRON_TZ=Japan
6 0 * * * morning
TZ=Europe/Paris
CRON_TZ=Mars/Olympus
7 0 * * * lost
@every 5m kept
CRON_TZ=
MAILTO=""
8 0 * * * evening \\
RANDOM_DELAY=45
CRON_WITHIN=300
9 0 * * * root spread
"""


def test_a_whole_crontab() -> None:
    """Variables apply to the lines after them; what they have no counterpart for is said with its line."""
    result = converted(WHOLE, timezone="Europe/Berlin")
    by_command = {schedule["trigger_payload"]["command"]: schedule for schedule in schedules(result)}
    assert ["nightly", "morning", "kept", "evening \\", "root spread"] == list(by_command)
    assert ["Europe/Berlin", "Japan", None, "Europe/Berlin", "Europe/Berlin"] == [
        schedule.get("timezone") for schedule in by_command.values()
    ]
    environment = {"SHELL": "/bin/sh", "PATH": "/usr/bin:/bin ", "QUOTED": "it''s"}
    assert {"command": "nightly", "environment": environment} == by_command["nightly"]["trigger_payload"]
    assert {**environment, "TZ": "Europe/Paris"} == by_command["kept"]["trigger_payload"]["environment"]
    assert "Two lines about it:\nevery night.\nnightly" == by_command["nightly"]["description"]
    assert "morning" == by_command["morning"]["description"]
    assert (2700, 300) == tuple(by_command["root spread"][f] for f in ("jitter_seconds", "misfire_grace_seconds"))
    unknown = "There is no timezone 'Mars/Olympus'. Use an IANA name such as 'Europe/Berlin'."
    kept = "is written to trigger_payload.environment: Carillon starts no shell."
    assert [
        f"2: SHELL {kept}",
        "3: MAILTO has no counterpart: cron mails the output of commands. Notifications tell of failed runs.",
        f"4: PATH {kept}",
        f"5: QUOTED {kept}",
        "12: TZ changes the timezone of commands, not when they run: it is written to trigger_payload.environment.",
        f"14: CRON_TZ of line 13 is not usable: {unknown}",
        "18: the command ends with a backslash, but cron does not join lines.",
        f"19: {RANDOM_DELAY}",
        "21: the command begins with 'root'. If this is a system crontab, add --system.",
    ] == messages(result)
    assert [14] == [notice.line for notice in result.notices if notice.left_out]


def test_what_a_flag_or_mark_loses_is_said() -> None:
    """A line is converted all the same."""
    flags = converted("0 0 * * * -n -qs cmd\n-1 0 * * * cmd\n2 0 ? * * cmd\n@5 cmd\nRANDOM_DELAY=soon\n")
    assert flags.is_complete
    assert [
        "1: -n (mail only if the command fails) has no counterpart.",
        "1: -q (no entry in the system's log) has no counterpart.",
        "2: the hyphen before the time (no entry in the system's log) has no counterpart.",
        "3: '?' is read as '*'; some crons mean a random value by it.",
        "4: cron counts these seconds from the end of the run before. Here they are counted from start to start.",
        "5: RANDOM_DELAY is not a number, and is ignored.",
    ] == messages(flags)


def test_without_a_timezone_one_warning_says_so() -> None:
    """Cron uses the timezone of its machine, which a crontab does not name. Intervals do not care."""
    result = converted("@every 5m a\n1 * * * * b\n2 * * * * c\n", timezone=None)
    assert ["2: no timezone is given, so it is UTC. Name another one with --timezone."] == messages(result)
    assert not any("timezone" in schedule for schedule in schedules(result))
    assert [] == messages(converted("CRON_TZ=Japan\n1 * * * * b\n", timezone=None))


def test_names_are_readable_unique_and_do_not_depend_on_the_order() -> None:
    """A command that occurs at several times has them in its name; only equal lines are counted."""
    lines = ["0 1 * * * backup  --all", "0 2 * * * backup --all", f"0 3 * * * {'x' * 300}", f"0 4 * * * {'x' * 300}y"]
    found = [schedule["name"] for schedule in schedules(converted("\n".join(lines)))]
    long = "x" * 97
    assert [
        "backup --all (0 1 * * *)",
        "backup --all (0 2 * * *)",
        f"{long}... (0 3 * * *)",
        f"{long}... (0 4 * * *)",
    ] == found
    assert set(found) == {schedule["name"] for schedule in schedules(converted("\n".join(reversed(lines))))}
    twice = [schedule["name"] for schedule in schedules(converted("@daily a\n@daily a\n@daily a (@daily) #2\n"))]
    assert ["a (@daily)", "a (@daily) #2", "a (@daily) #2 #2"] == twice


def test_each_schedule_has_a_workflow_that_shows_the_command() -> None:
    """It does nothing; braces in a command are no template. With a workflow of the operator there is no other."""
    result = converted("@daily plain\n@daily docker inspect --format '{{.Id}}' x\n")
    assert result.document is not None
    nodes = [workflow["nodes"][1] for workflow in result.document["workflows"]]
    assert ["core.noop", "core.noop"] == [node["type"] for node in nodes]
    assert ["plain", "{{ trigger.payload.command }}"] == [node["config"]["description"] for node in nodes]
    assert [w["name"] for w in result.document["workflows"]] == [s["workflow"] for s in schedules(result)]
    assert "docker inspect --format '{{.Id}}' x" == schedules(result)[1]["description"]
    own = converted("@daily plain\n", workflow="mine").document
    assert own is not None
    assert (False, "mine") == ("workflows" in own, own["schedules"][0]["workflow"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"date +\%F", ("date +%F", None)),
        ("cat%a%b", ("cat", "a\nb")),
        (r"cat%50\%%", ("cat", "50%\n")),
        (r"echo \\%x", (r"echo \\", "x")),
        (r"echo \n \% \\", (r"echo \n % \\", None)),
        ("cat %", ("cat", "")),
    ],
)
def test_a_percent_sign_begins_the_input(text: str, expected: tuple[str, str | None]) -> None:
    """Unless a backslash stands before it; a backslash can itself be escaped."""
    assert expected == split_at_percent(text)


@pytest.mark.parametrize(
    "line",
    [
        "@daily a\0b",
        f"@daily {'x' * 20_000}",
        f"{','.join(['1'] * 600)} * * * * x",
        "@every 99999w x",
        "@every 0s x",
        "@99999999999 x",
    ],
)
def test_what_apply_would_refuse_is_left_out(line: str) -> None:
    """With the reason; the other lines are converted."""
    result = converted(f"{line}\n@daily fine\n")
    assert [1] == [notice.line for notice in result.notices if notice.left_out and notice.message]
    assert ["fine"] == [schedule["name"] for schedule in schedules(result)]


@given(expressions | sparse_expressions | aliases, zones)
@example("0 0 */2 * 1", "UTC")
@example("* * LW * */6", "Africa/Cairo")
@examples(150)
def test_a_converted_line_fires_when_the_line_does(expression: str, zone: str) -> None:
    """For every expression that Carillon takes."""
    try:
        stored = canonical_cron(expression)
    except ValueError:
        reject()
    result = converted(f"CRON_TZ={zone}\n {expression}\tcmd %x\n")
    expected = times({"cron": stored, "timezone": zone})
    if not expected:
        # Such as the last working day of a month, on Sundays only: it never fires, and Carillon refuses it.
        assert [2] == [notice.line for notice in result.notices if notice.left_out and notice.message]
        return
    (schedule,) = schedules(result)
    assert expected == times(schedule)
    assert "cmd" == schedule["trigger_payload"]["command"]


MARKS = ["*", "@daily", "@every", "5m", "CRON_TZ=", "TZ =", "Japan", "#", "%", "\\", "1-5", "*/2", "H", "~", "?"]
ODD = [
    "\n",
    " ",
    "\t",
    "\0",
    "\x1b",
    "\r",
    "{{",
    "}}",
    "'",
    '"',
    "=",
    "root",
    "-s",
    "\x85",
    "\u2028",
    "\ufeff",
    "é",
    "-",
]
pieces = st.sampled_from([*MARKS, *ODD])


@given(st.lists(pieces | st.text(max_size=8), max_size=40).map("".join) | st.text(), st.booleans())
@example("* * * * * \ud7ff", False)
@examples(200)
def test_no_text_is_too_odd(text: str, system: bool) -> None:
    """Every line is converted or named; whatever is written, ``carillon apply`` reads as it was meant."""
    result = converted(text, system=system)
    assert all(1 <= notice.line <= text.count("\n") + 1 for notice in result.notices)
    if result.document is None:
        return
    written = write_documents([result.document])
    file = read_file(Source("out.yaml", written.encode()), CATALOG)
    assert () == file.problems
    read = [item.declared.values["trigger_payload"] for item in file.items if item.key.kind == "schedule"]
    assert [schedule["trigger_payload"] for schedule in schedules(result)] == read


def test_too_many_lines_are_refused_at_once() -> None:
    """Before they are checked one by one."""
    with pytest.raises(CarillonError, match="more than 10000 schedules"):
        converted("@daily x\n" * 10_001)


def test_a_crontab_of_another_day_gives_the_same() -> None:
    """The result does not depend on the time of the conversion."""
    later = declare(read_crontab(WHOLE, CrontabOptions()), Target("crontab"), NOW + timedelta(days=200))
    assert later == declare(read_crontab(WHOLE, CrontabOptions()), Target("crontab"), NOW)
