"""The files that `make console` has built, read into memory with their compressed variants."""

import mimetypes
from collections.abc import Mapping
from pathlib import Path

import msgspec

STATIC = Path(__file__).with_name("static")
INDEX = "index.html"
# The build writes these beside a file where they are smaller; the first that a client accepts is sent.
ENCODINGS = {"br": ".br", "gzip": ".gz"}
# Python reads these from the machine, which may have none or others. Litestar adds the charset.
MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".ico": "image/x-icon",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
DEFAULT_MEDIA_TYPE = "application/octet-stream"


class BuiltFile(msgspec.Struct, frozen=True):
    """A built file: its type, its content, and the content in each encoding that makes it smaller."""

    media_type: str
    content: bytes
    encoded: Mapping[str, bytes]

    def encoding_for(self, accept_encoding: str) -> str | None:
        """Return the best encoding that a client accepts, or None for the plain content."""
        accepted = _accepted(accept_encoding)
        return next((name for name in self.encoded if name in accepted), None)


class Bundle:
    """The built console. It is read again after another build, so that a running API needs no restart."""

    def __init__(self, folder: Path = STATIC) -> None:
        """Serve the files of this folder; nothing is read yet."""
        self._folder = folder
        self._build: int | None = None
        self._files: Mapping[str, BuiltFile] = {}

    def file(self, name: str) -> BuiltFile | None:
        """Return a file by its path below the folder, or None if the build has no such file."""
        self._refresh()
        return self._files.get(name)

    def _refresh(self) -> None:
        build = _build_of(self._folder)
        if build != self._build:
            self._files = {} if build is None else _read(self._folder)
            self._build = build


def _build_of(folder: Path) -> int | None:
    """Return what tells one build from another, or None if there is none. The build writes the index last."""
    try:
        return (folder / INDEX).stat().st_mtime_ns
    except OSError:
        return None


def _read(folder: Path) -> dict[str, BuiltFile]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.suffix not in ENCODINGS.values())
    return {path.relative_to(folder).as_posix(): _read_file(path) for path in paths}


def _read_file(path: Path) -> BuiltFile:
    variants = {name: path.with_name(path.name + suffix) for name, suffix in ENCODINGS.items()}
    encoded = {name: variant.read_bytes() for name, variant in variants.items() if variant.exists()}
    guessed = mimetypes.guess_type(path.name)[0] or DEFAULT_MEDIA_TYPE
    return BuiltFile(MEDIA_TYPES.get(path.suffix, guessed), path.read_bytes(), encoded)


def _accepted(accept_encoding: str) -> set[str]:
    """Return the encodings that a header names without refusing them by a weight of zero."""
    parts = (part.replace(" ", "").lower().partition(";q=") for part in accept_encoding.split(","))
    return {name for name, _, weight in parts if weight.strip("0.") or not weight}
