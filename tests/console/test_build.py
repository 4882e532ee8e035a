"""The build of the front end: what the lock promises, how much a browser loads, and its unit tests."""

import json
import re
import tomllib
from pathlib import Path

from tests.console.chromium import BUILT, ROOT, WEB, node
from tests.support.skip_reports import leave_untested

STATIC = BUILT.parent
FIRST_LOAD_BYTES = 210_000
ROUTE_BYTES = 100_000
TEST_SECONDS = 240


def lock() -> dict[str, dict[str, object]]:
    """The packages of the lock by their paths."""
    packages: dict[str, dict[str, object]] = json.loads((WEB / "package-lock.json").read_text())["packages"]
    return {path: package for path, package in packages.items() if path}


def test_the_lock_names_hashes_and_no_registry() -> None:
    """Optional packages of other platforms too: without a hash `npm ci` would take whatever a registry sends."""
    assert len(lock()) > 50
    assert [] == [path for path, package in lock().items() if "integrity" not in package]
    assert [] == [path for path, package in lock().items() if "resolved" in package]
    assert "omit-lockfile-registry-resolved=true" in (WEB / ".npmrc").read_text()


def test_tools_of_the_tests_are_not_needed_to_build() -> None:
    """`make up` leaves them out: a browser has 70 MB."""
    package = json.loads((WEB / "package.json").read_text())
    assert {"@sparticuz/chromium", "axe-core", "vitest"} == set(package["devDependencies"])


def test_the_wheel_has_the_build_and_not_its_sources() -> None:
    """What git ignores is in the wheel because it is named."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert (["app/console/static"], ["app/console/web"]) == (wheel["artifacts"], wheel["exclude"])


def built_files() -> list[Path]:
    """The compressed scripts and styles of the build, or a reason to leave the test out."""
    if not BUILT.exists():
        leave_untested("the size of the console: it is not built (make console)")
    return list((STATIC / "assets").glob("*.gz"))


def test_the_first_load_and_each_route_are_small() -> None:
    """The page, and the scripts and styles that it names, stay within the budget; so does each further file."""
    files = {path.name.removesuffix(".gz"): path.stat().st_size for path in built_files()}
    index = BUILT.read_text()
    first = {name for name in files if name in index}
    assert {".js", ".css"} == {Path(name).suffix for name in first}
    assert sum(files[name] for name in first) + len(index) < FIRST_LOAD_BYTES
    assert {} == {name: size for name, size in files.items() if name not in first and size > ROUTE_BYTES}


def test_the_page_has_nothing_inline_and_nothing_from_elsewhere() -> None:
    """The policy forbids inline scripts and styles, and every address is one of this server."""
    built_files()
    index = BUILT.read_text()
    assert [] == re.findall(r"<style|<script(?![^>]*src=)|style=|javascript:|//[a-z]", index)


def test_what_computes_is_right() -> None:
    """The unit tests beside the sources of the front end."""
    if not (WEB / "node_modules" / "vitest").exists():
        leave_untested("what the console computes: vitest is not installed (make test installs it)")
    done = node("node_modules/vitest/vitest.mjs", "run", "--maxWorkers=1", seconds=TEST_SECONDS)
    assert 0 == done.returncode, done.stdout + done.stderr
