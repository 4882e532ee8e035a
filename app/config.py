"""Settings, read once from the environment. A wrong value is refused with its name before anything starts."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

import msgspec

from app import failpoints
from app.database_url import DatabaseUrl, DatabaseUrlError, driver_url
from app.database_url import parse as parse_database_url
from app.redis_url import RedisUrlError
from app.redis_url import parse as parse_redis_url

ENV_PREFIX = "CARILLON_"
# Settings whose variables have no prefix: the services that send cron pings already use these names.
_OWN_NAMES = {"cron_run_token": "CRON_RUN_TOKEN", "auth_bearer_token": "AUTH_BEARER_TOKEN"}
# Settings that may be read from a file: the variable of the setting with this suffix names it.
FILE_SUFFIX = "_FILE"
SECRETS = (
    *("database_url", "migration_database_url", "redis_url", "admin_token", "signing_secret", "oidc_client_secret"),
    *("cron_run_token", "auth_bearer_token", "metrics_token"),
)

# The part of the address of a trace that stands for its id.
TRACE_ID = "{trace_id}"
KINDS: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false"}
HIGHEST_PORT = 65_535
PORTS = ("port", "metrics_port", "api_metrics_port")
POSITIVE = (
    *("reconcile_seconds", "lease_seconds", "worker_concurrency", "database_pool_size"),
    *("poll_seconds", "poll_batch", "poll_lease_seconds"),
    *("max_retries_limit", "timeout_seconds_limit", "payload_bytes_limit"),
    *("http_connections", "http_connections_per_address", "operator_resync_seconds"),
)
NOT_NEGATIVE = (
    *("drain_seconds", "rate_limit_per_minute", "auth_failures_per_minute", "history_days", "delete_after_seconds"),
    *("quota_schedules", "quota_workflows", "quota_webhooks", "quota_notifications", "quota_parked_runs"),
    *("quota_runs_at_once", "quota_calls_per_second"),
)
# As in ``app.domain.limits``, which knows what one ping may call.
MOST_SITEMAP_URLS = 20
SITEMAP_URL = re.compile(r"https?://[^\s/]+\S*")
# The largest value of an integer column in Postgres.
LARGEST_INTEGER = 2**31 - 1
STORED_AS_INTEGER = ("max_retries_limit", "timeout_seconds_limit", "delete_after_seconds")


class SettingsError(Exception):
    """A setting is missing or has a wrong value. The message names its environment variable."""

    code = "bad_setting"


def env_name(name: str) -> str:
    """Return the environment variable of a setting."""
    return _OWN_NAMES.get(name, ENV_PREFIX + name.upper())


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings with their defaults. The variable of a setting is ``CARILLON_`` and its name in upper case."""

    # The address and port of the API; port 0 lets `carillon up` choose a free one.
    host: str = "127.0.0.1"
    port: int = 8000
    # The folder in which `carillon up` keeps the embedded servers' data and the admin token.
    data_dir: str = ".data"
    # The URLs of Postgres and Redis. `carillon up` starts an embedded server for each that is blank.
    database_url: str = ""
    redis_url: str = ""
    # The URL that `carillon migrate` uses, such as one of the tables' owner, or past a pooler. Blank: `database_url`.
    migration_database_url: str = ""
    # The token of the built-in admin; blank: there is none (`carillon up` creates one).
    admin_token: str = ""
    # Hosts, addresses and CIDRs that outgoing calls may reach although they are not public, separated by commas.
    http_allow: str = ""
    # A file with certificate authorities that outgoing calls trust in addition to those of the system.
    http_ca_file: str = ""
    # The secret that signs the calls of admins and plugins; blank: they are not signed.
    signing_secret: str = ""
    # False: slots are recorded as missed and not made up for. Manual runs still run.
    schedules_enabled: bool = True
    # The URLs to call after publishing runs, separated by commas, unless an admin has stored others.
    sitemap_urls: str = ""
    # A folder whose files are secrets that admins' templates may name.
    secrets_dir: str = ""
    # The URL under which targets reach the API for callbacks; blank: the address that the API listens on.
    # It is also the issuer of the tokens that calls carry; blank: there are none.
    public_url: str = ""
    # The identity provider whose users may log in, and whose JSON Web Tokens are accepted; blank: there is none.
    oidc_issuer: str = ""
    # The client that Carillon is for the provider, for logins of browsers; without a secret it is a public client.
    oidc_client_id: str = ""
    oidc_client_secret: str = ""
    # The scopes that a login asks for, separated by blanks.
    oidc_scopes: str = "openid profile email"
    # The audience that bearer tokens of the provider and of Kubernetes must name.
    oidc_audience: str = "carillon"
    # The claim that lists a user's groups, and the group whose members are admins (blank: claims decide on no roles).
    oidc_groups_claim: str = "groups"
    oidc_admin_group: str = ""
    # Groups that begin so name teams, by the rest of their name.
    oidc_team_prefix: str = ""
    # Files: the certificate authority of the provider's server, and a bearer token that it requires.
    oidc_ca_file: str = ""
    oidc_token_file: str = ""
    # The issuer of Kubernetes service account tokens that are accepted, and files as above.
    kubernetes_issuer: str = ""
    kubernetes_ca_file: str = ""
    kubernetes_token_file: str = ""
    # The token of the cron ping; the second is used if the first is blank. Both blank: every ping is refused.
    cron_run_token: str = ""
    auth_bearer_token: str = ""
    # Seconds between two runs of the reconciler, which looks for ticks whose wake-up was lost.
    reconcile_seconds: float = 5.0
    # Seconds between two polls of entities, entities per poll, and seconds until another worker takes over the polling.
    poll_seconds: float = 60.0
    poll_batch: int = 100
    poll_lease_seconds: float = 70.0
    # Seconds without a renewal after which a worker's runs count as lost.
    lease_seconds: float = 30.0
    # Days for which executions and the ledger are kept; whole weeks are dropped. 0: for ever.
    history_days: int = 30
    # The same for the audit log. -1: as long as the history.
    audit_days: int = -1
    # Seconds after which a schedule that is done is deleted, unless it says so itself. 0: never.
    delete_after_seconds: int = 0
    # Seconds that a stopping worker has to finish its runs before it hands them back.
    drain_seconds: float = 25.0
    # Runs that one worker process executes at the same time.
    worker_concurrency: int = 1000
    # Half of the connections to Postgres that one process may open.
    database_pool_size: int = 10
    # Requests per minute of one token. 0: neither this limit nor the next.
    rate_limit_per_minute: int = 6000
    # Failed authentications per minute from one address.
    auth_failures_per_minute: int = 300
    # Addresses and CIDRs of proxies whose X-Forwarded-For is trusted, separated by commas.
    trusted_proxies: str = ""
    # Open connections to one API process: from one address (trusted proxies excepted), and in total.
    http_connections_per_address: int = 512
    http_connections: int = 4096
    # The number of objects that one user may have. 0: no limit.
    quota_schedules: int = 0
    quota_workflows: int = 0
    quota_webhooks: int = 0
    quota_notifications: int = 100
    quota_parked_runs: int = 10_000
    quota_runs_at_once: int = 0
    quota_calls_per_second: int = 0
    # The largest values that a schedule or a webhook may have.
    max_retries_limit: int = 1_000
    timeout_seconds_limit: int = 2_592_000
    payload_bytes_limit: int = 65_536
    # Points at which the process kills itself, for fault tests: see ``app.failpoints``.
    failpoints: str = ""
    # The port on which a worker serves health and metrics. 0: none.
    metrics_port: int = 0
    # The port on which the API serves /metrics. 0: the port of the API; any other removes /metrics from that port.
    api_metrics_port: int = 0
    # The bearer token that /metrics of the API and of workers requires. Blank: none.
    metrics_token: str = ""
    # The URL of the API for `carillon operator`, and the folder with a file for each namespace that has its token.
    operator_url: str = ""
    operator_tokens_dir: str = ""
    # The namespaces of Kubernetes whose objects are applied, separated by commas (blank: all), and what the names of
    # their namespaces in Carillon begin with.
    operator_namespaces: str = ""
    operator_namespace_prefix: str = ""
    # Seconds after which all objects of a namespace are applied again, and their status is refreshed.
    operator_resync_seconds: float = 60.0
    # The Lease for which several operators compete, in the namespace of their pods.
    operator_lease: str = "carillon-operator"
    # The OTLP/HTTP address to which traces are sent (blank: no traces), and the share of them, from 0 to 1.
    otel_endpoint: str = ""
    otel_sample_ratio: float = 1.0
    # The address at which people look at a trace, with `{trace_id}` in it. Blank: runs have no link to their trace.
    trace_url: str = ""
    # `auto` is `console` on a terminal and `json` elsewhere.
    log_format: Literal["auto", "console", "json"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    def __post_init__(self) -> None:
        """Refuse values that have the right type and cannot work."""
        self._require(PORTS, lambda value: 0 <= value <= HIGHEST_PORT, f"must be between 0 and {HIGHEST_PORT}")
        self._require(POSITIVE, lambda value: value > 0, "must be greater than 0")
        self._require(NOT_NEGATIVE, lambda value: value >= 0, "must not be negative")
        self._require(("audit_days",), lambda value: value >= -1, "must not be less than -1")
        largest = f"must not be greater than {LARGEST_INTEGER}"
        self._require(STORED_AS_INTEGER, lambda value: value <= LARGEST_INTEGER, largest)
        self._require(("otel_sample_ratio",), lambda value: 0 <= value <= 1, "must be between 0 and 1")
        if self.otel_endpoint and not self.otel_endpoint.startswith(("http://", "https://")):
            raise SettingsError("CARILLON_OTEL_ENDPOINT must start with http:// or https://")
        if self.trace_url and not (self.trace_url.startswith(("http://", "https://")) and TRACE_ID in self.trace_url):
            raise SettingsError(f"CARILLON_TRACE_URL must start with http:// or https:// and contain {TRACE_ID}")
        _ = self.proxy_networks
        _ = self.default_sitemap_urls
        self._require_issuers()

    def _require_issuers(self) -> None:
        for name in ("oidc_issuer", "kubernetes_issuer"):
            issuer = getattr(self, name)
            if issuer and not is_protected_url(issuer):
                raise SettingsError(f"{env_name(name)} must be a URL with https:// (http:// only on loopback)")
            if issuer and issuer.rstrip("/") == self.public_url.rstrip("/"):
                # Everybody whose workflow makes a call could use its token as a user.
                raise SettingsError(f"{env_name(name)} must differ from CARILLON_PUBLIC_URL")
        if self.oidc_issuer and self.oidc_issuer == self.kubernetes_issuer:
            raise SettingsError("CARILLON_KUBERNETES_ISSUER must differ from CARILLON_OIDC_ISSUER")
        if (self.oidc_issuer or self.kubernetes_issuer) and not self.oidc_audience:
            raise SettingsError("CARILLON_OIDC_AUDIENCE must not be blank")
        if self.oidc_client_id and not self.oidc_issuer:
            raise SettingsError("CARILLON_OIDC_CLIENT_ID needs CARILLON_OIDC_ISSUER")

    def _require(self, names: Iterable[str], is_valid: Callable[[float], bool], demand: str) -> None:
        for name in names:
            value = getattr(self, name)
            if not is_valid(value):
                raise SettingsError(f"{env_name(name)} {demand}; it is {value}")

    @property
    def callback_url(self) -> str:
        """The URL under which targets reach the API: ``public_url``, or the address that the API listens on."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)  # noqa: S104 - read, not bound
        return self.public_url or f"http://{host}:{self.port}"

    @property
    def public_origin(self) -> str | None:
        """The origin of ``public_url``, as browsers send it; None if there is none."""
        parts = urlsplit(self.public_url)
        return f"{parts.scheme}://{parts.netloc}" if parts.netloc else None

    @property
    def issuer(self) -> str:
        """The issuer of the tokens that calls carry: ``public_url``. If it is blank, there are no tokens."""
        return self.public_url.rstrip("/")

    @property
    def cron_token(self) -> str:
        """The token of the cron ping; if it is blank, every ping is refused."""
        return self.cron_run_token or self.auth_bearer_token

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        """Hosts, addresses and CIDRs that outgoing calls may reach although they are not public."""
        return _parts(self.http_allow)

    @property
    def watched_namespaces(self) -> tuple[str, ...]:
        """The namespaces of Kubernetes that an operator watches; none are all."""
        return _parts(self.operator_namespaces)

    @property
    def default_sitemap_urls(self) -> tuple[str, ...]:
        """The URLs to call after publishing runs, unless an admin has stored others."""
        urls = _parts(self.sitemap_urls)
        if len(urls) > MOST_SITEMAP_URLS or not all(SITEMAP_URL.fullmatch(url) for url in urls):
            raise SettingsError(
                f"CARILLON_SITEMAP_URLS must be at most {MOST_SITEMAP_URLS} URLs that begin with http:// or https://, "
                "separated by commas"
            )
        return urls

    @property
    def proxy_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """Networks of the proxies whose ``X-Forwarded-For`` is trusted."""
        try:
            return tuple(ip_network(part, strict=False) for part in _parts(self.trusted_proxies))
        except ValueError as error:
            raise SettingsError(
                f"CARILLON_TRUSTED_PROXIES must be a list of addresses and CIDRs, separated by commas: {error}"
            ) from None


def is_protected_url(url: str) -> bool:
    """Return whether a URL is one of HTTPS, or of HTTP on the own machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        is_loopback = host == "localhost" or (parts.scheme == "http" and ip_address(host).is_loopback)
    except ValueError:
        return False
    if parts.query or parts.fragment or parts.username or parts.password:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback))


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def load_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of the environment; a blank variable means the default."""
    values = {}
    for field in msgspec.structs.fields(Settings):
        text = _text_of(field.name, environ)
        if text:
            values[field.name] = _converted(field, text)
    settings = Settings(**values)
    _require_redis_url(settings.redis_url)
    urls = ("database_url", "migration_database_url")
    return msgspec.structs.replace(
        settings, **{name: async_database_url(getattr(settings, name), name) for name in urls}
    )


def _text_of(name: str, environ: Mapping[str, str]) -> str:
    """Return the text of a variable, or of the file that its counterpart with ``_FILE`` names."""
    text = environ.get(env_name(name), "").strip()
    variable = env_name(name) + FILE_SUFFIX
    path = environ.get(variable, "").strip() if name in SECRETS else ""
    if not path:
        return text
    if text:
        raise SettingsError(f"{env_name(name)} and {variable} are both set. Unset one of them")
    value = _read_file(path, f"The file that {variable} names").strip()
    if not value:
        raise SettingsError(f"The file that {variable} names is empty: {path}")
    return value


def _converted(field: msgspec.structs.FieldInfo, text: str) -> Any:
    try:
        return msgspec.convert(text, field.type, strict=False)
    except msgspec.ValidationError:
        expected = KINDS.get(field.type) or f"one of {', '.join(get_args(field.type))}"
        raise SettingsError(
            f"{env_name(field.name)} must be {expected}. Correct it, or unset it to use the default, {field.default}"
        ) from None


def _require_redis_url(url: str) -> None:
    """Refuse a URL that is not understood, or whose files cannot be read. The error does not quote a password."""
    if not url:
        return
    variable = env_name("redis_url")
    try:
        for parameter, path in parse_redis_url(url).files.items():
            _read_file(path, f"{variable}: the file that {parameter} names")
    except RedisUrlError as error:
        raise SettingsError(f"{variable} {error}") from None


def async_database_url(url: str, name: str = "database_url") -> str:
    """Return the URL with the driver's scheme, once everything in it is understood and its files can be read."""
    if not url:
        return ""
    try:
        parsed = parse_database_url(url)
        for parameter, path in parsed.files.items():
            _read_file(path, f"{env_name(name)}: the file that {parameter} names")
        _require_root_certificate(parsed, env_name(name))
        return driver_url(url)
    except DatabaseUrlError as error:
        raise SettingsError(f"{env_name(name)} {error}") from None


def _require_root_certificate(url: DatabaseUrl, variable: str) -> None:
    """Refuse a mode that verifies the server without a certificate authority; the driver would fail at each connect."""
    mode = url.parameters.get("sslmode", "")
    elsewhere = os.environ.get("PGSSLROOTCERT") or Path("~/.postgresql/root.crt").expanduser().exists()
    if mode.startswith("verify") and "sslrootcert" not in url.parameters and not elsewhere:
        raise SettingsError(
            f"{variable} has sslmode={mode} and no sslrootcert. Add sslrootcert=FILE with the certificate authority of "
            "the server, or sslrootcert=system"
        )


def _read_file(path: str, what: str) -> str:
    """Return the text of a file; ``what`` names it in the error."""
    try:
        return Path(path).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingsError(f"{what} cannot be read ({reason}): {path}") from None


def require_stores(settings: Settings) -> Settings:
    """Arm the failpoints, and return the settings if they name Postgres and Redis, which all but ``up`` need."""
    try:
        failpoints.arm(settings.failpoints)
    except ValueError as error:
        raise SettingsError(f"CARILLON_FAILPOINTS has a wrong value: {error}") from None
    for name in ("database_url", "redis_url"):
        if not getattr(settings, name):
            raise SettingsError(
                f"{env_name(name)} is not set. Set it, or run `carillon up`, which starts embedded servers"
            )
    return settings
