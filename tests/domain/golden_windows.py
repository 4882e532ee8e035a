"""Slots within windows and apart from excluded days."""

from tests.domain.golden import BERLIN, GOOSE_BAY, NEW_YORK, NUUK, Row

WINDOWS = [
    Row(
        "the window's start is in, its end is out",
        {"cron": "0 * * * *", "only_between": "09:00-11:00"},
        "2026-01-01 00:00",
        ["Thu 2026-01-01 09:00 +0000", "Thu 2026-01-01 10:00 +0000", "Fri 2026-01-02 09:00 +0000"],
    ),
    Row(
        "a window up to midnight",
        {"cron": "0 * * * *", "only_between": "22:00-00:00"},
        "2026-01-01 00:00",
        ["Thu 2026-01-01 22:00 +0000", "Thu 2026-01-01 23:00 +0000", "Fri 2026-01-02 22:00 +0000"],
    ),
    Row(
        "an overnight window without the hours that lie on an excluded day",
        {"cron": "0 * * * *", "only_between": "22:00-02:00", "not_on": ["fri"]},
        "2026-01-01 20:00",
        [
            "Thu 2026-01-01 22:00 +0000",
            "Thu 2026-01-01 23:00 +0000",
            "Sat 2026-01-03 00:00 +0000",
            "Sat 2026-01-03 01:00 +0000",
            "Sat 2026-01-03 22:00 +0000",
        ],
    ),
    Row(
        "excluded days are those of the place",
        {"cron": "0 */6 * * *", "not_on": ["sat", "sun"], **NEW_YORK},
        "2026-01-02 16:00",
        [
            "Fri 2026-01-02 12:00 -0500",
            "Fri 2026-01-02 18:00 -0500",
            "Mon 2026-01-05 00:00 -0500",
            "Mon 2026-01-05 06:00 -0500",
        ],
    ),
    Row(
        "a window in the gap does not open on that day",
        {"cron": "*/30 * * * *", "only_between": "02:00-03:00", **BERLIN},
        "2026-03-28 00:00",
        [
            "Sat 2026-03-28 02:00 +0100",
            "Sat 2026-03-28 02:30 +0100",
            "Mon 2026-03-30 02:00 +0200",
            "Mon 2026-03-30 02:30 +0200",
        ],
    ),
    Row(
        "a window in the repeated hour opens twice",
        {"cron": "*/30 * * * *", "only_between": "02:00-03:00", **BERLIN},
        "2026-10-24 12:00",
        [
            "Sun 2026-10-25 02:00 +0200",
            "Sun 2026-10-25 02:30 +0200",
            "Sun 2026-10-25 02:00 +0100",
            "Sun 2026-10-25 02:30 +0100",
            "Mon 2026-10-26 02:00 +0100",
        ],
    ),
    Row(
        "a wall time that is moved out of its window is not expected",
        {"cron": "30 2 * * *", "only_between": "02:00-03:00", **BERLIN},
        "2026-03-27 12:00",
        ["Sat 2026-03-28 02:30 +0100", "Mon 2026-03-30 02:30 +0200", "Tue 2026-03-31 02:30 +0200"],
    ),
    Row(
        "a wall time that only a change of the clocks moves into its window",
        {"cron": "30 2 * * *", "only_between": "03:00-04:00", **BERLIN},
        "2026-01-01 00:00",
        ["Sun 2026-03-29 03:00 +0200", "Sun 2027-03-28 03:00 +0200", "Sun 2028-03-26 03:00 +0200"],
    ),
    Row(
        "the repeated hour of New York by a window",
        {"cron": "15 * * * *", "only_between": "01:00-02:00", **NEW_YORK},
        "2026-10-31 12:00",
        ["Sun 2026-11-01 01:15 -0400", "Sun 2026-11-01 01:15 -0500", "Mon 2026-11-02 01:15 -0500"],
    ),
    Row(
        "an interval jumps over closed hours and keeps its phase",
        {"every": "50m", "only_between": "09:00-11:00"},
        "2026-01-01 09:00",
        [
            "Thu 2026-01-01 09:00 +0000",
            "Thu 2026-01-01 09:50 +0000",
            "Thu 2026-01-01 10:40 +0000",
            "Fri 2026-01-02 09:10 +0000",
            "Fri 2026-01-02 10:00 +0000",
            "Fri 2026-01-02 10:50 +0000",
            "Sat 2026-01-03 09:20 +0000",
        ],
    ),
    Row(
        "an interval jumps over the weekend and keeps its phase",
        {"every": "36h", "not_on": ["sat", "sun"]},
        "2026-01-01 00:00",
        [
            "Thu 2026-01-01 00:00 +0000",
            "Fri 2026-01-02 12:00 +0000",
            "Mon 2026-01-05 12:00 +0000",
            "Wed 2026-01-07 00:00 +0000",
            "Thu 2026-01-08 12:00 +0000",
            "Tue 2026-01-13 00:00 +0000",
        ],
    ),
    Row(
        "an interval counts hours that pass, its window those on the wall",
        {"every": "6h", "only_between": "08:00-18:00", **BERLIN},
        "2026-03-28 07:00",
        [
            "Sat 2026-03-28 08:00 +0100",
            "Sat 2026-03-28 14:00 +0100",
            "Sun 2026-03-29 09:00 +0200",
            "Sun 2026-03-29 15:00 +0200",
            "Mon 2026-03-30 09:00 +0200",
        ],
    ),
    Row(
        "daily is 24 hours, whatever the clocks do",
        {"every": "daily", **BERLIN},
        "2026-03-28 11:00",
        ["Sat 2026-03-28 12:00 +0100", "Sun 2026-03-29 13:00 +0200", "Mon 2026-03-30 13:00 +0200"],
    ),
    Row(
        "an interval in an overnight window that the clocks of Nuuk lengthen",
        {"every": "30m", "only_between": "23:30-00:30", **NUUK},
        "2026-10-25 00:00",
        [
            "Sat 2026-10-24 23:30 -0100",
            "Sat 2026-10-24 23:30 -0200",
            "Sun 2026-10-25 00:00 -0200",
            "Sun 2026-10-25 23:30 -0200",
        ],
    ),
    Row(
        "the window of Goose Bay that opened for the one minute before the clocks went back",
        {"every": "15m", "only_between": "00:00-23:30", **GOOSE_BAY},
        "2010-11-07 02:00",
        [
            "Sat 2010-11-06 23:00 -0300",
            "Sat 2010-11-06 23:15 -0300",
            "Sun 2010-11-07 00:00 -0300",
            "Sat 2010-11-06 23:15 -0400",
            "Sun 2010-11-07 00:00 -0400",
            "Sun 2010-11-07 00:15 -0400",
        ],
    ),
    Row(
        "an excluded Sunday stays excluded when the clocks change on it",
        {"cron": "0 12 * * *", "not_on": ["sunday"], **BERLIN},
        "2026-03-27 12:00",
        ["Sat 2026-03-28 12:00 +0100", "Mon 2026-03-30 12:00 +0200", "Tue 2026-03-31 12:00 +0200"],
    ),
]
