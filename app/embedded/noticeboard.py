"""Where a running ``carillon up`` says how to reach its database, so that other commands on this machine find it."""

from contextlib import suppress
from pathlib import Path

NOTICE_NAME = "database-url"


def post_database_url(data_dir: Path, url: str) -> None:
    """Tell where the embedded Postgres of this data folder listens now."""
    (data_dir / NOTICE_NAME).write_text(f"{url}\n")


def remove_database_url(data_dir: Path) -> None:
    """It listens no more."""
    with suppress(OSError):
        (data_dir / NOTICE_NAME).unlink()


def posted_database_url(data_dir: Path) -> str:
    """Where it listens; empty if nothing runs on this data folder."""
    try:
        return (data_dir / NOTICE_NAME).read_text().strip()
    except OSError:
        return ""
