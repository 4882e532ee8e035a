"""The chart, rendered by the helms that can be had here."""

import os
from pathlib import Path

import pytest

from tests.chart.helms import MAJORS, HelmMissingError, apart, find_helm
from tests.chart.rendering import Renderer
from tests.support.skip_reports import leave_untested


@pytest.fixture(scope="session")
def helm_cache(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a helm that was fetched stays for the next run."""
    cache = pytestconfig.cache
    return cache.mkdir("helm") if cache else tmp_path_factory.mktemp("helm")


@pytest.fixture(scope="session", params=MAJORS, ids=lambda major: f"helm{major}")
def render_by_each(
    request: pytest.FixtureRequest, helm_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Renderer:
    """The chart, by one helm after another."""
    return _renderer((request.param,), helm_cache, tmp_path_factory)


@pytest.fixture(scope="session")
def render(helm_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    """The chart, by the newest helm that can be had."""
    return _renderer(MAJORS[::-1], helm_cache, tmp_path_factory)


def _renderer(majors: tuple[int, ...], cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    """By the first of these helms that is there; or word of their absence."""
    problems = []
    for major in majors:
        try:
            helm = apart(find_helm(major, cache), tmp_path_factory.mktemp("helm-home"))
        except HelmMissingError as error:
            problems.append(f"the chart with helm {major}: {error}")
        else:
            return Renderer(helm, tmp_path_factory.mktemp("values"), _shared(f"helm-{major}", tmp_path_factory))
    return leave_untested("\n".join(problems))


def _shared(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this run, whichever of its processes asks."""
    folder = tmp_path_factory.getbasetemp()
    run = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    (run / name).mkdir(exist_ok=True)
    return run / name
