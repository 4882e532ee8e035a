"""The promises hold in every history: time is virtual, the engine and Postgres are real, faults come by a seed.

A history that breaks one prints all that happened in it, and the variable to play it again with: ``SIMULATION_SEED=n``
for one that came by chance, ``SIMULATION_SCENE=name/point/fault`` for a scene. ``SIMULATION_HISTORIES=n`` plays so many
by chance, and every scene with every fault at every point; without it, a sample that takes seconds.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import app
from app.embedded import EmbeddedPostgres
from tests.simulation.faults import Fault
from tests.simulation.histories import SCENES, Scene
from tests.simulation.postgres import NEVER_WAIT, ROWS_HELD
from tests.simulation.simulation import CLAIM, IDLE_UNITS, Simulation

WANTED = os.environ.get("SIMULATION_HISTORIES")
SEED = os.environ.get("SIMULATION_SEED")
ONE_CASE = os.environ.get("SIMULATION_SCENE")
HISTORIES = int(WANTED or "12")
# So many parts, that two processes can share the work.
PARTS = 4
# Odd, so that both faults have their turn.
EVERY = 1 if WANTED else 11
HELD_EVERY = 1 if WANTED else 4


@pytest.fixture(scope="module")
def simulation(postgres: EmbeddedPostgres) -> Iterator[Simulation]:
    """A database of its own, with a virtual clock, for all histories."""
    with Simulation(postgres) as opened:
        yield opened


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_promises_hold_wherever_a_process_dies_or_a_store_goes_away(simulation: Simulation, scene: Scene) -> None:
    """At every point of a short scene in turn: ``kill -9``, a lost connection or answer, rows that another holds."""
    if ONE_CASE or SEED:
        wanted = [case.split("/") for case in [ONE_CASE or ""] if case.startswith(f"{scene.name}/")]
        cases = [(int(number), Fault(fault)) for _, number, fault in wanted]
    else:
        points = simulation.points_of(scene)
        assert len(points) > 10
        cases = [(number, fault) for number in points for fault in (Fault.KILL, Fault.AWAY)][::EVERY]
        cases += [(number, Fault.HELD) for number, where in points.items() if where.endswith(ROWS_HELD)][::HELD_EVERY]
    for number, fault in cases:
        simulation.play_scene(scene, number, fault)


@pytest.mark.parametrize("part", range(PARTS))
def test_promises_hold_whatever_happens(simulation: Simulation, part: int) -> None:
    """By chance: processes die, stand still and go on, stores go away, messages are lost and doubled, people meddle."""
    seeds = [int(SEED)] if SEED else [] if ONE_CASE else range(HISTORIES)
    for seed in seeds[part::PARTS]:
        simulation.play_random(seed)


def test_the_same_seed_is_the_same_history(simulation: Simulation) -> None:
    """What a seed finds can be looked at again."""
    assert simulation.play_random(7) == simulation.play_random(7)


def test_the_units_of_work_that_it_names_exist() -> None:
    """A unit of work that is renamed in the product would silently lose its faults here."""
    source = "".join(path.read_text() for path in Path(app.__file__).parent.rglob("*.py"))
    names = {*NEVER_WAIT, *IDLE_UNITS, CLAIM}
    assert [] == sorted(name for name in names if f'("{name}")' not in source)
