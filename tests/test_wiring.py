"""A process is built of one service of each kind: app.wiring."""

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from app import wiring
from app.config import Settings, SettingsError
from app.persistence.database import Database
from app.queue.bell import RedisPool

SERVICES = sorted(name for name in vars(wiring) if name.endswith("Service"))


async def test_a_process_has_one_service_of_each_kind(
    settings: Settings, database: Database, redis: RedisPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two would have two caches and two batches: each row would be read twice, and each batch be half as full."""
    made: Counter[str] = Counter()
    for name in SERVICES:
        service = getattr(wiring, name)

        def build(*values: Any, _service: Any = service, _name: str = name, **named: Any) -> Any:
            made[_name] += 1
            return _service(*values, **named)

        monkeypatch.setattr(wiring, name, build)
    wiring.wire_services(settings, database, redis, wiring._http(settings, database))
    assert dict.fromkeys(SERVICES, 1) == made


def test_a_file_of_authorities_that_cannot_be_read_is_refused_by_name(settings: Settings, database: Database) -> None:
    """Before anything starts, not at the first call."""
    for path in ("/nowhere/ca.crt", __file__):
        with pytest.raises(SettingsError, match="CARILLON_HTTP_CA_FILE cannot be used: "):
            wiring._http(replace(settings, http_ca_file=path), database)
