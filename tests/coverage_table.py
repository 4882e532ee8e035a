"""Prints how much of each package the last ``make coverage`` ran, as the table in docs/development.md shows it."""

import sys
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from coverage import Coverage


class Figures(msgspec.Struct):
    """How many lines and branches there are, and how many of them were run."""

    num_statements: int = 0
    covered_lines: int = 0
    num_branches: int = 0
    covered_branches: int = 0

    def add(self, other: "Figures") -> None:
        """Count another module."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def row(self) -> str:
        """The number of lines, then lines and branches in per cent."""
        lines, branches = max(self.num_statements, 1), max(self.num_branches, 1)
        return f"{self.num_statements} | {self.covered_lines / lines:.1%} | {self.covered_branches / branches:.1%}"


class Module(msgspec.Struct):
    """A file of the report."""

    summary: Figures


class Report(msgspec.Struct):
    """What coverage writes as JSON."""

    files: dict[str, Module]


def package_of(path: Path) -> str:
    """Return the package right below ``app`` that a module belongs to, or ``app`` for a module of its own."""
    parts = path.parts[path.parts.index("app") :]
    return ".".join(parts[:2]) if len(parts) > 2 else "app"


def read_report() -> Report:
    """Return the figures of every module, those that were never imported included."""
    coverage = Coverage()
    coverage.load()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "coverage.json"
        coverage.json_report(outfile=str(path))
        return msgspec.json.decode(path.read_bytes(), type=Report)


def table(report: Report) -> list[str]:
    """Return the rows by package, and a last one for all of them."""
    packages: dict[str, Figures] = defaultdict(Figures)
    total = Figures()
    # Tests run the release before, too, from a folder of its own: its modules do not count.
    own = {path: module for path, module in report.files.items() if Path(path).parts[0] == "app"}
    for path, module in own.items():
        packages[package_of(Path(path))].add(module.summary)
        total.add(module.summary)
    rows = [f"| `{name}` | {figures.row} |" for name, figures in sorted(packages.items())]
    return ["| package | lines | lines run | branches run |", "|---|---|---|---|", *rows, f"| all | {total.row} |"]


if __name__ == "__main__":
    sys.stdout.write("\n".join([*table(read_report()), ""]))
