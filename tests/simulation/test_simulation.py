"""The promises hold in every history: time is virtual, the engine and Postgres are real, faults come by a seed.

A history that breaks one prints all that happened in it, and the variable to play it again with: ``SIMULATION_SEED=n``
for one that came by chance, ``SIMULATION_SCENE=name/point/fault`` for a scene. ``SIMULATION_HISTORIES=n`` plays so many
by chance, and every scene with every fault at every point; without it, a sample that takes seconds.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import app
from app.embedded import EmbeddedPostgres
from tests.simulation.faults import Fault, OneFault
from tests.simulation.histories import SCENES, Scene
from tests.simulation.postgres import NEVER_WAIT, ROWS_HELD
from tests.simulation.simulation import CLAIM, IDLE_UNITS, Simulation
from tests.simulation.world import World

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


def test_a_rate_is_kept_within_two_percent_over_a_minute(simulation: Simulation) -> None:
    """Two schedules want more runs than their limit allows, on two workers; as many start as it says."""
    begun: list[float] = []

    async def play(world: World, workflow_id: int) -> None:
        await world.named_limit("crm", "60/m", 1)
        jobs = [await world.create(workflow_id, interval_seconds=1, limit="crm") for _ in range(2)]
        for _ in range(2):
            world.start_worker()
        await asyncio.sleep(64)
        begun.extend(call.begun for call in world.calls)
        for job in jobs:
            assert job is not None
            await world.pause(job)

    simulation.play("rate", play, Random(0), OneFault())
    first = begun[2]
    in_a_minute = sum(first <= moment < first + 60 for moment in begun)
    assert 0.98 * 60 <= in_a_minute <= 1.02 * 60


def test_the_same_seed_is_the_same_history(simulation: Simulation) -> None:
    """What a seed finds can be looked at again."""
    # The first history of a process loads what later ones find loaded.
    simulation.play_random(6)
    assert simulation.play_random(7) == simulation.play_random(7)


def test_the_units_of_work_that_it_names_exist() -> None:
    """A unit of work that is renamed in the product would silently lose its faults here."""
    source = "".join(path.read_text() for path in Path(app.__file__).parent.rglob("*.py"))
    names = {*NEVER_WAIT, *IDLE_UNITS, CLAIM}
    assert [] == sorted(name for name in names if f'("{name}")' not in source)
