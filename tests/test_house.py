"""Every module of the product can be found from a test, and the other way round.

A test file stands for the module of its own path (``tests/domain/test_overlap.py`` for ``app.domain.overlap``), and for
those that its docstring names after the word "Covers".
"""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from tests.support.source import parse

ROOT = Path(__file__).parent.parent
COVERS = re.compile(r"\bCovers\s+((?:app(?:\.\w+)+(?:,\s+|\b))+)")
NAME = re.compile(r"app(?:\.\w+)+")
# Packages that an extra of a dependency brings: pyjwt[crypto].
FROM_EXTRAS = {"holidays", "cryptography"}
LISTED = re.compile(r"^- ((?:``\w+``(?:, )?)+):", re.MULTILINE)


def modules() -> set[str]:
    """Return the modules of the product by their dotted names, without packages."""
    paths = (path.relative_to(ROOT) for path in (ROOT / "app").rglob("*.py") if path.name != "__init__.py")
    return {".".join(path.with_suffix("").parts) for path in paths}


def mirrored(test: Path) -> str:
    """Return the module that a test file has the path of, be there such a module or not."""
    folders = test.relative_to(ROOT / "tests").parent.parts
    return ".".join(["app", *folders, test.stem.removeprefix("test_")])


def covered_by(test: Path) -> set[str]:
    """Return the modules that the docstring of a test file names."""
    docstring = ast.get_docstring(parse(test.read_text())) or ""
    return {name for names in COVERS.findall(docstring) for name in NAME.findall(names)}


def test_every_module_is_named_by_a_test() -> None:
    """Name the test file after the module, or add "Covers app.package.module." to the docstring of its test file."""
    tests = list((ROOT / "tests").rglob("test_*.py"))
    named = {mirrored(test) for test in tests}.union(*(covered_by(test) for test in tests))
    assert [] == sorted(modules() - named)


def test_what_tests_say_they_cover_exists() -> None:
    """A module that was renamed or moved must be renamed in the docstrings, too."""
    known = modules()
    unknown = {
        f"{test.relative_to(ROOT)}: {name}"
        for test in (ROOT / "tests").rglob("test_*.py")
        for name in covered_by(test) - known
        if test != Path(__file__)
    }
    assert [] == sorted(unknown)


def imported(module: Path) -> set[str]:
    """Return the packages that a module imports, by their first name."""
    nodes = list(ast.walk(parse(module.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    return {name.partition(".")[0] for name in names}


def test_every_package_that_is_imported_is_a_dependency() -> None:
    """Of the product itself: neither one for development only, nor one that another dependency happens to need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *project["optional-dependencies"]["embedded"]]
    known = {re.split(r"[^\w.-]", text, maxsplit=1)[0].lower().replace("_", "-") for text in declared}
    packages = set().union(*(imported(path) for path in (ROOT / "app").rglob("*.py"))) - sys.stdlib_module_names
    distributions = packages_distributions()
    unknown = {
        package
        for package in packages - {"app", "migrations"} - FROM_EXTRAS
        if not known & {name.lower().replace("_", "-") for name in distributions.get(package, [])}
    }
    assert [] == sorted(unknown)


def test_package_docstrings_list_modules_that_exist() -> None:
    """A line "- ``name``: what it holds" in a package's docstring names modules or packages of that package."""
    listed = {
        package.parent / name
        for package in (ROOT / "app").rglob("__init__.py")
        for line in LISTED.findall(ast.get_docstring(parse(package.read_text())) or "")
        for name in re.findall(r"``(\w+)``", line)
    }
    assert len(listed) > 30
    assert [] == sorted(str(path) for path in listed if not path.with_suffix(".py").exists() and not path.is_dir())
