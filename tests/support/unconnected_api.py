"""The application, connected to nothing, and its OpenAPI document: to build them takes a second of the processor."""

import msgspec

from app.api.openapi import document
from app.config import load_settings
from app.wiring import wire_api
from tests.support.carillon import Json

APPLICATION = wire_api(
    load_settings({"CARILLON_DATABASE_URL": "postgresql+asyncpg:///nowhere", "CARILLON_REDIS_URL": "unix:///nowhere"})
)
# As clients get it: look, and change nothing.
DOCUMENT: Json = msgspec.json.decode(msgspec.json.encode(document(APPLICATION)))
