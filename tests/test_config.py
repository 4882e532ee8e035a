"""Settings come from the environment; what cannot work is refused by the name of the setting."""

from pathlib import Path

import pytest

from app.config import FILE_SUFFIX, SECRETS, Settings, SettingsError, env_name, load_settings, require_stores

STORES = {"CARILLON_DATABASE_URL": "postgresql://h/d", "CARILLON_REDIS_URL": "redis://h"}


def test_a_blank_value_is_the_default() -> None:
    """As an empty line of a Compose file or a chart leaves it."""
    assert Settings() == load_settings({"CARILLON_PORT": " ", "CARILLON_DATABASE_URL": "", "OTHER": "x"})


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgres://u:p@h:1/d", "postgresql+asyncpg://u:p@h:1/d"),
        ("postgresql+psycopg://h/d", "postgresql+asyncpg://h/d"),
        ("postgresql:///d?host=/run", "postgresql+asyncpg:///d?host=/run"),
        ("postgresql://h/d?sslmode=require", "postgresql+asyncpg://h/d?sslmode=require"),
    ],
)
def test_every_usual_spelling_of_a_database_url_is_understood(url: str, expected: str) -> None:
    """Written for the driver that Carillon uses."""
    assert expected == load_settings({"CARILLON_DATABASE_URL": url}).database_url


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "65536"),
        ("LEASE_SECONDS", "0"),
        ("RATE_LIMIT_PER_MINUTE", "-1"),
        ("DATABASE_URL", "mysql://h/d"),
        ("DATABASE_URL", "postgresql://u:top/secret@h:x/d"),
        ("REDIS_URL", "redis://:top/secret@h:x"),
        ("TRUSTED_PROXIES", "nowhere"),
        ("OTEL_ENDPOINT", "collector:4318"),
        ("OIDC_ISSUER", "login.example.org"),
        ("OIDC_ISSUER", "http://login.example.org"),
        ("OIDC_ISSUER", "https://u:secret@login.example.org"),
        ("OIDC_ISSUER", "https://login.example.org/?realm=secret"),
        ("KUBERNETES_ISSUER", "file:///secret"),
        ("OIDC_CLIENT_ID", "carillon"),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_its_name(name: str, value: str) -> None:
    """A URL may hold a password: it is not quoted."""
    with pytest.raises(SettingsError, match=f"CARILLON_{name}") as refused:
        load_settings({f"CARILLON_{name}": value})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_every_secret_can_be_a_file(tmp_path: Path, name: str) -> None:
    """The variable with _FILE names it; blanks and line ends around the value are dropped."""
    value = {"redis_url": "redis://h"}.get(name, "postgresql+asyncpg://h/d")
    file = tmp_path / "secret"
    file.write_text(f"{value}\n")
    variable = env_name(name) + FILE_SUFFIX
    assert value == getattr(load_settings({variable: str(file)}), name)
    with pytest.raises(SettingsError, match=f"{env_name(name)} and {variable} are both set"):
        load_settings({variable: str(file), env_name(name): value})
    file.write_text("\n")
    with pytest.raises(SettingsError, match=f"{variable} names is empty"):
        load_settings({variable: str(file)})
    with pytest.raises(SettingsError, match=f"{variable} names cannot be read"):
        load_settings({variable: str(tmp_path / "missing")})


def test_every_setting_that_sounds_secret_is_one() -> None:
    """A token, a secret or a URL with a password that is added later can be a file too."""
    sounding = {name for name in Settings.__struct_fields__ if name.endswith(("_token", "_secret", "_password"))}
    assert sounding | {"database_url", "migration_database_url", "redis_url"} == set(SECRETS)


@pytest.mark.parametrize(
    "issuer", ["https://login.example.org/realms/x", "http://127.0.0.1:8080", "http://localhost/x"]
)
def test_an_issuer_has_tls_or_is_on_loopback(issuer: str) -> None:
    """And the two issuers differ: their claims mean different things."""
    assert issuer == load_settings({"CARILLON_OIDC_ISSUER": issuer}).oidc_issuer
    with pytest.raises(SettingsError, match="CARILLON_KUBERNETES_ISSUER"):
        load_settings({"CARILLON_OIDC_ISSUER": issuer, "CARILLON_KUBERNETES_ISSUER": issuer})


@pytest.mark.parametrize("name", ["CARILLON_OIDC_ISSUER", "CARILLON_KUBERNETES_ISSUER"])
def test_carillon_does_not_trust_its_own_tokens(name: str) -> None:
    """Everybody whose workflow makes a call could send its token to the API and be another user."""
    own = "https://carillon.example.org"
    for issuer in (own, f"{own}/"):
        with pytest.raises(SettingsError, match=f"{name} must differ from CARILLON_PUBLIC_URL"):
            load_settings({name: issuer, "CARILLON_PUBLIC_URL": own})


@pytest.mark.parametrize("missing", sorted(STORES))
def test_a_process_without_a_store_says_which(missing: str) -> None:
    """Every process but ``carillon up`` needs both."""
    with pytest.raises(SettingsError, match=missing):
        require_stores(load_settings({name: url for name, url in STORES.items() if name != missing}))


def test_a_failpoint_that_does_not_exist_is_refused() -> None:
    """A fault suite with a misspelt point would test nothing."""
    with pytest.raises(SettingsError, match="no_such_point"):
        require_stores(load_settings(STORES | {"CARILLON_FAILPOINTS": "no_such_point=1"}))
