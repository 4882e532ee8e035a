"""Settings, read once from the environment. A bad value is refused by name, before anything starts."""

import os
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from app import failpoints

ENV_PREFIX = "CARILLON_"

# libpq spells TLS as sslmode; asyncpg's dialect as ssl. Accept what operators already have in their Secrets.
_QUERY_NAMES = {"sslmode": "ssl"}


# These are called so wherever there is a cron ping.
_OWN_NAMES = {"cron_run_token": "CRON_RUN_TOKEN", "auth_bearer_token": "AUTH_BEARER_TOKEN"}


POSITIVE = (
    *("reconcile_seconds", "lease_seconds", "worker_concurrency", "database_pool_size"),
    *("poll_seconds", "poll_batch", "poll_lease_seconds"),
    *("max_retries_limit", "timeout_seconds_limit", "payload_bytes_limit"),
    *("http_connections", "http_connections_per_address"),
)
# What a column of Postgres can hold.
LARGEST_INTEGER = 2**31 - 1
NOT_NEGATIVE = (
    *("drain_seconds", "rate_limit_per_minute", "auth_failures_per_minute", "history_days"),
    *("quota_schedules", "quota_workflows", "quota_webhooks", "quota_notifications", "quota_parked_runs"),
)


class SettingsError(Exception):
    """A setting in the environment cannot be used."""

    code = "bad_setting"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting with its default; the environment's name is the field's, upper-cased, after ``CARILLON_``."""

    host: str = "127.0.0.1"
    port: int = 8000
    data_dir: str = ".data"
    database_url: str = ""
    redis_url: str = ""
    admin_token: str = ""
    http_allow: str = ""
    signing_secret: str = ""
    schedules_enabled: bool = True
    secrets_dir: str = ""
    public_url: str = ""
    cron_run_token: str = ""
    auth_bearer_token: str = ""
    reconcile_seconds: float = 5.0
    poll_seconds: float = 60.0
    poll_batch: int = 100
    poll_lease_seconds: float = 70.0
    lease_seconds: float = 30.0
    # After which what is past is dropped, a week at a time; 0 is never.
    history_days: int = 30
    drain_seconds: float = 25.0
    worker_concurrency: int = 1000
    database_pool_size: int = 10
    # Requests a minute by token; failed authentication a minute by address. 0 switches the counting off.
    rate_limit_per_minute: int = 6000
    auth_failures_per_minute: int = 300
    # Addresses and CIDRs of proxies whose X-Forwarded-For is believed, separated by commas.
    trusted_proxies: str = ""
    # Open connections of one API process, from one address and in all. Trusted proxies count in all only.
    http_connections_per_address: int = 512
    http_connections: int = 4096
    # How many objects each user may have; 0 is no limit.
    quota_schedules: int = 0
    quota_workflows: int = 0
    quota_webhooks: int = 0
    quota_notifications: int = 100
    quota_parked_runs: int = 10_000
    # The largest values that a schedule or a webhook may have.
    max_retries_limit: int = 1_000
    timeout_seconds_limit: int = 2_592_000
    payload_bytes_limit: int = 65_536
    # Where this process shall die, for fault suites: see ``app.failpoints``.
    failpoints: str = ""
    # Where a worker answers Prometheus; 0 is nowhere.
    metrics_port: int = 0
    # Where the API answers Prometheus; 0 is its own port, any other takes /metrics away from there.
    api_metrics_port: int = 0
    # The bearer token that /metrics asks for, of the API and of workers; none if blank.
    metrics_token: str = ""
    # Where traces go, by OTLP over HTTP, and which share of them; they are off without an address.
    otel_endpoint: str = ""
    otel_sample_ratio: float = 1.0
    log_format: Literal["auto", "console", "json"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    def __post_init__(self) -> None:
        """Refuse values that the types allow and that cannot work."""
        for name in ("port", "metrics_port", "api_metrics_port"):
            if not 0 <= getattr(self, name) <= 65535:  # noqa: PLR2004 - the highest TCP port
                raise SettingsError(f"CARILLON_{name.upper()} must be between 0 and 65535, not {getattr(self, name)}")
        self._require(POSITIVE, lambda value: value > 0, "must be greater than 0")
        self._require(NOT_NEGATIVE, lambda value: value >= 0, "must not be negative")
        largest = f"must not be greater than {LARGEST_INTEGER}"
        self._require(("max_retries_limit", "timeout_seconds_limit"), lambda value: value <= LARGEST_INTEGER, largest)
        if not 0 <= self.otel_sample_ratio <= 1:
            raise SettingsError("CARILLON_OTEL_SAMPLE_RATIO must be between 0 and 1")
        if self.otel_endpoint and not self.otel_endpoint.startswith(("http://", "https://")):
            raise SettingsError("CARILLON_OTEL_ENDPOINT must start with http:// or https://")
        _ = self.proxy_networks

    def _require(self, names: Iterable[str], is_good: Callable[[float], bool], demand: str) -> None:
        for name in names:
            if not is_good(getattr(self, name)):
                raise SettingsError(f"{ENV_PREFIX}{name.upper()} {demand}")

    @property
    def callback_url(self) -> str:
        """Where targets reach the API: as it is said, or where it listens."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)  # noqa: S104 - read, not bound
        return self.public_url or f"http://{host}:{self.port}"

    @property
    def cron_token(self) -> str:
        """The token of the cron ping; nobody is let in if it is blank."""
        return self.cron_run_token or self.auth_bearer_token

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        """Hosts and CIDRs that outgoing calls may reach although they are not public."""
        return _parts(self.http_allow)

    @property
    def proxy_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """Networks of the proxies whose ``X-Forwarded-For`` is believed."""
        try:
            return tuple(ip_network(part, strict=False) for part in _parts(self.trusted_proxies))
        except ValueError as error:
            raise SettingsError(f"CARILLON_TRUSTED_PROXIES must hold addresses and CIDRs: {error}") from None


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def load_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings from the environment; a blank value means the default."""
    given = {}
    for name in Settings.__struct_fields__:
        value = environ.get(_OWN_NAMES.get(name, ENV_PREFIX + name.upper()), "").strip()
        if value:
            given[name] = value
    try:
        settings = msgspec.convert(given, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"A CARILLON_ setting is wrong: {error}") from None
    _readable("redis_url", settings.redis_url)
    return msgspec.structs.replace(settings, database_url=async_database_url(settings.database_url))


def _readable(name: str, url: str) -> SplitResult:
    """The parts of a URL; what is wrong with one is said without quoting it."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise SettingsError(
            f"{ENV_PREFIX}{name.upper()} cannot be read: / ? # @ : % in a name or password are written %2F and so on"
        ) from None
    return parts


def async_database_url(url: str) -> str:
    """The URL for SQLAlchemy's asyncpg dialect, from any usual spelling of a Postgres URL."""
    if not url:
        return ""
    parts = _readable("database_url", url)
    if parts.scheme.split("+")[0] not in {"postgres", "postgresql"}:
        raise SettingsError("CARILLON_DATABASE_URL must start with postgresql://")
    query = urlencode([(_QUERY_NAMES.get(key, key), value) for key, value in parse_qsl(parts.query)])
    rebuilt = urlunsplit(("postgresql+asyncpg", parts.netloc, parts.path, query, ""))
    return rebuilt if parts.netloc else rebuilt.replace("postgresql+asyncpg:/", "postgresql+asyncpg:///", 1)


def require_stores(settings: Settings) -> Settings:
    """Every process but ``up`` needs to be told where Postgres and Redis are, and where to die, if it shall."""
    try:
        failpoints.arm(settings.failpoints)
    except ValueError as error:
        raise SettingsError(f"CARILLON_FAILPOINTS cannot be used: {error}") from None
    for name in ("database_url", "redis_url"):
        if not getattr(settings, name):
            raise SettingsError(f"CARILLON_{name.upper()} is not set; `carillon up` brings its own servers")
    return settings
