"""A supervised process as a value, and the rule by which it is started again."""

from signal import SIGKILL, SIGTERM, Signals

import msgspec

from app.embedded.command import Command, StopStep

# The API and the worker drain in 3 s; with what the servers take after them all ends within 10 s.
DRAIN_STEPS = (StopStep(SIGTERM, 6.0), StopStep(SIGKILL, 5.0))


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, under which name its lines appear, and how it is stopped."""

    name: str
    command: Command
    stop_steps: tuple[StopStep, ...] = DRAIN_STEPS
    # Lines with any of these are not shown.
    muted: tuple[str, ...] = ()


class RestartPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A child that ends is started again after a pause, a longer one each time, until it has lived for a while."""

    first_seconds: float = 0.5
    longest_seconds: float = 10.0
    settled_seconds: float = 30.0
    # Before all is ready a child that ends this often is given up: something is wrong that waiting does not mend.
    starts_before_ready: int = 5

    def pause_after(self, previous_pause: float, lived_seconds: float) -> float:
        """How long to wait before the next start."""
        if previous_pause == 0 or lived_seconds >= self.settled_seconds:
            return self.first_seconds
        return min(previous_pause * 2, self.longest_seconds)


def exit_words(code: int) -> str:
    """How a process ended, for people."""
    return f"exited with signal {Signals(-code).value}" if code < 0 else f"exited with code {code}"
