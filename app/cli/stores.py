"""Where an operator's commands find the database."""

from pathlib import Path

from msgspec.structs import replace

from app.config import Settings, SettingsError, load_settings
from app.embedded.noticeboard import posted_database_url


def settings_with_database() -> Settings:
    """The settings; where they name no database, that of a `carillon up` which runs on the data folder."""
    settings = load_settings()
    if settings.database_url:
        return settings
    posted = posted_database_url(Path(settings.data_dir).expanduser())
    if not posted:
        raise SettingsError(f"CARILLON_DATABASE_URL is not set, and no `carillon up` is running on {settings.data_dir}")
    return replace(settings, database_url=posted)
