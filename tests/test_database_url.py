"""Postgres URLs in the format of libpq are understood, or refused by the name of the parameter.

Covers app.database_url.
"""

from pathlib import Path

import pytest

from app.config import SettingsError, load_settings
from app.database_url import DatabaseUrlError, parse


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p@h:1/d", ["postgresql://u:p@/d?host=h&port=1"]),
        ("postgres:///d?host=/run", ["postgresql:///d?host=%2Frun"]),
        ("postgresql://%2Frun/d", ["postgresql:///d?host=%2Frun"]),
        ("postgresql://u:p%40q@h/d", ["postgresql://u:p%40q@/d?host=h"]),
        ("postgresql://u:p@q@h/d", ["postgresql://u:p%40q@/d?host=h"]),
        ("postgresql://[::1]:5433/d", ["postgresql:///d?host=%5B%3A%3A1%5D&port=5433"]),
        ("postgresql:///d?host=::1&port=5433", ["postgresql:///d?host=%5B%3A%3A1%5D&port=5433"]),
        ("postgresql+asyncpg://h/d?ssl=require", ["postgresql:///d?host=h&sslmode=require"]),
        (
            "postgresql://h/d?options=-c%20search_path%3Dx&application_name=a%26b",
            ["postgresql:///d?host=h&options=-c%20search_path%3Dx&application_name=a%26b"],
        ),
        ("postgresql://h?dbname=d&user=u", ["postgresql://?host=h&dbname=d&user=u"]),
        ("postgresql://h/d?channel_binding=prefer&gssencmode=disable", ["postgresql:///d?host=h"]),
        (
            "postgresql://u@a:1,b:2/d",
            [
                "postgresql://u@/d?host=a&port=1&target_session_attrs=read-write",
                "postgresql://u@/d?host=b&port=2&target_session_attrs=read-write",
            ],
        ),
        (
            "postgresql:///d?host=a,b&port=7&target_session_attrs=any",
            [
                "postgresql:///d?host=a&port=7&target_session_attrs=any",
                "postgresql:///d?host=b&port=7&target_session_attrs=any",
            ],
        ),
    ],
)
def test_usual_urls_are_understood(url: str, expected: list[str]) -> None:
    """There is one URL for the driver for each host; with several hosts, one that accepts writes is looked for."""
    assert tuple(expected) == parse(url).host_urls


def test_a_connect_timeout_is_not_for_the_server() -> None:
    """It bounds the wait for a connection; 0 is the default."""
    assert 3 == parse("postgresql://h/d?connect_timeout=3").connect_timeout_seconds
    assert parse("postgresql://h/d?connect_timeout=0").connect_timeout_seconds is None
    assert ("postgresql:///d?host=h",) == parse("postgresql://h/d?connect_timeout=3").host_urls


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("keepalives=1", "keepalives"),
        ("service=x", "service"),
        ("prepared_statement_cache_size=0", "prepared_statement_cache_size"),
        ("sslmode=sometimes", "sslmode"),
        ("ssl=sometimes", "ssl"),
        ("channel_binding=require", "channel_binding"),
        ("target_session_attrs=standby", "target_session_attrs"),
        ("ssl_min_protocol_version=SSLv3", "ssl_min_protocol_version"),
        ("ssl_max_protocol_version=1.3", "ssl_max_protocol_version"),
        ("connect_timeout=soon", "connect_timeout"),
        ("port=99999", "port"),
        ("port=1,2", "port"),
        ("sslmode=require&ssl=require", "twice"),
    ],
)
def test_what_is_not_understood_is_refused_by_its_name(query: str, named: str) -> None:
    """Before anything starts, and without a word of the password."""
    with pytest.raises(SettingsError, match=f"CARILLON_DATABASE_URL .*{named}") as refused:
        load_settings({"CARILLON_DATABASE_URL": f"postgresql://u:hidden@h/d?{query}"})
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("url", ["mysql://h/d", "postgresql://u:top/hidden@h:x/d", "postgresql://u:hid#den@h/d", "h/d"])
def test_what_is_no_url_is_refused(url: str) -> None:
    """The remedy is in the message, the password is not."""
    with pytest.raises(DatabaseUrlError) as refused:
        parse(url)
    assert "hid" not in str(refused.value)


@pytest.mark.parametrize("parameter", ["sslrootcert", "sslcert", "sslkey", "passfile"])
def test_a_file_that_cannot_be_read_is_refused_at_the_start(tmp_path: Path, parameter: str) -> None:
    """A missing mount is found by the name of its parameter, not at the first connection."""
    missing = tmp_path / "missing"
    with pytest.raises(SettingsError, match=f"CARILLON_DATABASE_URL: the file that {parameter} names cannot be read"):
        load_settings({"CARILLON_DATABASE_URL": f"postgresql://h/d?{parameter}={missing}"})


def test_the_authorities_of_the_system_may_be_another_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`sslrootcert=system` follows the variable that OpenSSL follows, as in libpq."""
    bundle = tmp_path / "bundle.pem"
    bundle.touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    assert str(bundle) == parse("postgresql://h/d?sslmode=verify-full&sslrootcert=system").files["sslrootcert"]


def test_a_verified_server_needs_an_authority(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without one every connection would fail; libpq's variable names one too."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PGSSLROOTCERT", raising=False)
    given = {"CARILLON_DATABASE_URL": "postgresql://h/d?sslmode=verify-full"}
    with pytest.raises(SettingsError, match="sslrootcert"):
        load_settings(given)
    monkeypatch.setenv("PGSSLROOTCERT", str(tmp_path / "ca.crt"))
    assert load_settings(given).database_url
