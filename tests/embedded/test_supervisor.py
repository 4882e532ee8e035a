"""The supervisor with tiny children, inside this process."""

import asyncio
import io
import os
import signal
import sys
from collections.abc import Awaitable, Callable

import pytest
from rich.console import Console

from app.embedded import ChildFailed
from app.embedded.child_process import Child, Command, Output, RestartPolicy, StopStep
from app.embedded.supervisor import Supervisor

QUICK = RestartPolicy(first_seconds=0.01, longest_seconds=0.02)
WAITS = "import signal; print('up', flush=True); signal.pause()"


def _child(name: str, code: str, **options: object) -> Child:
    command = Command(argv=(sys.executable, "-c", code), env=dict(os.environ))
    return Child(name=name, command=command, **options)  # type: ignore[arg-type]


def _run(bring_up: Callable[[Supervisor], Awaitable[None]], written: io.StringIO | None = None) -> list[str]:
    """Run a supervisor to its end; what it printed."""
    written = written or io.StringIO()
    console = Console(file=written)

    async def run() -> None:
        await asyncio.wait_for(Supervisor(Output(console), QUICK).run(bring_up), 30)

    asyncio.run(run())
    return written.getvalue().splitlines()


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


class StopsAfter(io.StringIO):
    """What was written; at the given number of times that the text was, a signal asks to stop."""

    def __init__(self, text: str, times: int) -> None:
        """Wait for the text."""
        super().__init__()
        self._text = text
        self._times = times

    def write(self, text: str) -> int:
        """Write, and count."""
        before = self.getvalue().count(self._text)
        written = super().write(text)
        if before < self._times <= self.getvalue().count(self._text):
            _stop()
        return written


def _printed(written: io.StringIO, text: str) -> Callable[[], str | None]:
    return lambda: None if text in written.getvalue() else text


def test_lines_are_relayed_one_by_one() -> None:
    """Every line comes with its child's name, muted ones and nothing else left out, an unfinished one included."""
    code = "import sys; print('one'); print('noise 1'); print('two', file=sys.stderr); print('three', end='')"

    async def bring_up(supervisor: Supervisor) -> None:
        await supervisor.run_to_end(_child("migrate", code, muted=("noise",)))
        _stop()

    assert {"migrate  | one", "migrate  | two", "migrate  | three"} == set(_run(bring_up)[:-1])


def test_an_endless_line_is_cut() -> None:
    """A child that never ends its line is relayed in pieces, and loses nothing."""

    async def bring_up(supervisor: Supervisor) -> None:
        await supervisor.run_to_end(_child("api", "print('x' * 200_000)"))
        _stop()

    lines = [line.removeprefix("api      | ") for line in _run(bring_up)[:-1]]
    assert (True, "x" * 200_000) == (len(lines) > 1, "".join(lines))


def test_a_failed_step_ends_everything() -> None:
    """A migration that fails is an error, and what ran before it is stopped."""
    written = io.StringIO()

    async def bring_up(supervisor: Supervisor) -> None:
        supervisor.keep_running(_child("valkey", WAITS + "\nprint('never')"))
        await supervisor.wait_for("it", _printed(written, "up"))
        await supervisor.run_to_end(_child("migrate", "raise SystemExit(3)"))

    with pytest.raises(ChildFailed, match="migrate exited with code 3"):
        _run(bring_up, written)
    assert ["valkey   | up"] == written.getvalue().splitlines()


def test_a_child_that_cannot_start_is_given_up_before_ready() -> None:
    """After five attempts the supervisor says which child fails, and how, instead of trying for ever."""

    async def bring_up(supervisor: Supervisor) -> None:
        supervisor.keep_running(_child("worker", "raise SystemExit('no luck')"))
        await supervisor.wait_for("the impossible", lambda: "patience")

    with pytest.raises(ChildFailed, match="worker does not start: it was tried 5 times and exited with code 1"):
        _run(bring_up)


def test_a_missing_program_is_named() -> None:
    """The launcher says which program is not there."""

    async def bring_up(supervisor: Supervisor) -> None:
        await supervisor.run_to_end(Child(name="api", command=Command(argv=("/no/such/program",), env={})))

    written = io.StringIO()
    with pytest.raises(ChildFailed):
        _run(bring_up, written)
    assert ["api      | /no/such/program cannot be run: No such file or directory"] == written.getvalue().splitlines()


def test_after_ready_a_child_is_started_again_for_ever() -> None:
    """A child that keeps ending is reported each time, beyond the number that would be given up before."""

    async def bring_up(supervisor: Supervisor) -> None:
        supervisor.keep_running(_child("worker", "raise SystemExit(7)"))

    lines = _run(bring_up, StopsAfter("started again", 6))
    assert 6 <= sum("worker exited with code 7; started again (pid " in line for line in lines)


def test_children_are_stopped_in_the_reverse_order() -> None:
    """What was started last is stopped first, and an earlier one only when that has ended."""
    written = io.StringIO()
    code = (
        "import signal, sys\ndef end(*_): print('ends', flush=True); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end); print('is up', flush=True); signal.pause()"
    )

    async def bring_up(supervisor: Supervisor) -> None:
        for name in ("postgres", "api"):
            supervisor.keep_running(_child(name, code))
            await supervisor.wait_for(name, _printed(written, f"{name:<8} | is up"))
        _stop()

    assert ["api      | ends", "postgres | ends"] == _run(bring_up, written)[-2:]


def test_a_stubborn_child_meets_harsher_signals() -> None:
    """One that ignores the first signal gets the next when its time is over."""
    written = io.StringIO()
    steps = (StopStep(signal.SIGTERM, 0.1), StopStep(signal.SIGKILL, 10))
    code = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}"

    async def bring_up(supervisor: Supervisor) -> None:
        supervisor.keep_running(_child("worker", code, stop_steps=steps))
        await supervisor.wait_for("it", _printed(written, "up"))
        _stop()

    assert ["worker   | up", "Stopping ... (Ctrl-C again to stop faster)"] == _run(bring_up, written)


def test_a_second_signal_hastens_the_stop() -> None:
    """A child that would have had an hour is killed at once."""
    written = StopsAfter("no", 1)
    steps = (StopStep(signal.SIGTERM, 3600), StopStep(signal.SIGKILL, 10))
    code = (
        "import signal\nsignal.signal(signal.SIGTERM, lambda *_: print('no', flush=True))\n"
        "print('up', flush=True)\nwhile True: signal.pause()"
    )

    async def bring_up(supervisor: Supervisor) -> None:
        supervisor.keep_running(_child("worker", code, stop_steps=steps))
        await supervisor.wait_for("it", _printed(written, "up"))
        _stop()

    assert "worker   | no" == _run(bring_up, written)[-1]


def test_what_is_missing_is_said_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long wait explains itself."""
    monkeypatch.setattr("app.embedded.supervisor.REMINDER_SECONDS", 0.0)
    answers = iter(["Postgres is away", "Postgres is away", None])

    async def bring_up(supervisor: Supervisor) -> None:
        await supervisor.wait_for("the API", lambda: next(answers))
        _stop()

    assert "Still waiting for the API: Postgres is away" in _run(bring_up)
