"""Postgres URLs in the format of libpq: which parameters are understood, and a URL for each host.

A parameter that is not understood is refused by its name, because the driver would send it to the server as a setting.
"""

import re
import ssl
from urllib.parse import parse_qsl, quote, unquote, urlencode

import msgspec

SCHEMES = ("postgres", "postgresql")
DRIVER_SCHEME = "postgresql+asyncpg"
TLS_VERSIONS = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
# Parameters that name a file, which must be readable at the start.
FILE_PARAMETERS = ("sslrootcert", "sslcert", "sslkey", "sslcrl", "passfile")
# Parameters that the driver understands, or hands to the server.
_PASSED_ON = (
    *("user", "password", "dbname", "sslmode", "sslpassword", "sslnegotiation"),
    *("ssl_min_protocol_version", "ssl_max_protocol_version", "target_session_attrs"),
    *("application_name", "options", *FILE_PARAMETERS),
)
_PARAMETERS = {"host", "port", "connect_timeout", "gssencmode", "channel_binding", *_PASSED_ON}
# SQLAlchemy's name of the TLS mode.
_OTHER_NAMES = {"ssl": "sslmode"}
_VALUES = {
    "sslmode": SSL_MODES,
    "sslnegotiation": ("postgres", "direct"),
    "ssl_min_protocol_version": TLS_VERSIONS,
    "ssl_max_protocol_version": TLS_VERSIONS,
    # Carillon writes, so a standby is of no use.
    "target_session_attrs": ("any", "read-write", "primary"),
    # The driver has neither; what does not insist on them works without.
    "gssencmode": ("disable", "prefer"),
    "channel_binding": ("disable", "prefer"),
}
_URL = re.compile(r"(?P<scheme>[a-z0-9+]+)://(?P<authority>[^/?#]*)(?P<path>/[^?#]*)?(\?(?P<query>[^#]*))?")
_HOST = re.compile(r"(?P<host>\[[^\]]+\]|[^:\[\]]*)(:(?P<port>[0-9]+))?")
_HIGHEST_PORT = 65_535
_HINT = (
    "is not a valid URL. If the user name or the password contains one of / ? # @ : % write it percent-encoded, such "
    "as %2F for /"
)


class DatabaseUrlError(ValueError):
    """A URL cannot be used. The message names the parameter and quotes no value, which may be a password."""

    code = "bad_database_url"


class DatabaseUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A URL for the driver for each host, in the order in which they are tried, and what the driver does not read."""

    host_urls: tuple[str, ...]
    connect_timeout_seconds: int | None
    parameters: dict[str, str]

    @property
    def files(self) -> dict[str, str]:
        """The files that parameters name, by parameter."""
        return {name: self.parameters[name] for name in FILE_PARAMETERS if self.parameters.get(name)}


def driver_url(url: str) -> str:
    """Return the URL with the scheme that SQLAlchemy has for the driver."""
    scheme, separator, rest = url.partition("://")
    if scheme.split("+")[0] not in SCHEMES:
        raise DatabaseUrlError("must start with postgresql://")
    return f"{DRIVER_SCHEME}{separator}{rest}"


def parse(url: str) -> DatabaseUrl:
    """Return what a URL says, or raise ``DatabaseUrlError`` for what is not understood."""
    match = _URL.fullmatch(driver_url(url))
    if match is None:
        raise DatabaseUrlError(_HINT)
    parameters = _parameters(match["query"] or "")
    user, at, host_list = match["authority"].rpartition("@")
    # The driver ends the password at the first @.
    user_and_database = user.replace("@", "%40") + at + (match["path"] or "").rstrip("/")
    hosts = _hosts(host_list, parameters)
    passed_on = {name: value for name, value in parameters.items() if name in _PASSED_ON}
    if len(hosts) > 1:
        passed_on.setdefault("target_session_attrs", "read-write")
    return DatabaseUrl(
        host_urls=tuple(_host_url(user_and_database, host, passed_on) for host in hosts),
        connect_timeout_seconds=_whole_number("connect_timeout", parameters) or None,
        parameters=parameters,
    )


def _parameters(query: str) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for given_name, value in parse_qsl(query, keep_blank_values=True):
        name = _OTHER_NAMES.get(given_name, given_name)
        if name not in _PARAMETERS:
            raise DatabaseUrlError(f"has the parameter {given_name}, which Carillon does not understand. Remove it")
        if name in parameters:
            raise DatabaseUrlError(f"has the parameter {given_name} twice")
        if name in _VALUES and value not in _VALUES[name]:
            raise DatabaseUrlError(f"has a wrong value of {given_name}: it must be one of {', '.join(_VALUES[name])}")
        parameters[name] = value
    return _with_system_certificates(parameters)


def _with_system_certificates(parameters: dict[str, str]) -> dict[str, str]:
    """Replace ``sslrootcert=system`` by the file with the system's certificate authorities, or by ``SSL_CERT_FILE``."""
    if parameters.get("sslrootcert") != "system":
        return parameters
    paths = ssl.get_default_verify_paths()
    return {**parameters, "sslrootcert": paths.cafile or paths.openssl_cafile}


def _hosts(host_list: str, parameters: dict[str, str]) -> list[tuple[str, str]]:
    """Return each host with its port, blank for the default one. Parameters override the authority, as in libpq."""
    hosts = [_host(part) for part in host_list.split(",")]
    if "host" in parameters:
        hosts = [_host(f"[{part}]" if _is_bare_ipv6(part) else part) for part in parameters["host"].split(",")]
    if "port" in parameters:
        ports = parameters["port"].split(",")
        if len(ports) not in {1, len(hosts)}:
            raise DatabaseUrlError("must have one port, or a port for each host")
        hosts = [(host, ports[index % len(ports)]) for index, (host, _) in enumerate(hosts)]
    for _, port in hosts:
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) <= _HIGHEST_PORT):
            raise DatabaseUrlError(f"has a wrong port: it must be between 1 and {_HIGHEST_PORT}")
    return hosts


def _is_bare_ipv6(host: str) -> bool:
    return host.count(":") > 1 and not host.startswith(("[", "/"))


def _host(part: str) -> tuple[str, str]:
    """Return host and port. An IPv6 address stays in brackets, as the driver wants it."""
    match = _HOST.fullmatch(part)
    if match is None:
        raise DatabaseUrlError(_HINT)
    return unquote(match["host"]), match["port"] or ""


def _host_url(user_and_database: str, host: tuple[str, str], parameters: dict[str, str]) -> str:
    query = {"host": host[0], "port": host[1], **parameters}
    given = urlencode({name: value for name, value in query.items() if value}, quote_via=quote)
    return f"postgresql://{user_and_database}?{given}" if given else f"postgresql://{user_and_database}"


def _whole_number(name: str, parameters: dict[str, str]) -> int:
    text = parameters.get(name, "0")
    if not (text.isascii() and text.isdigit()):
        raise DatabaseUrlError(f"has a wrong value of {name}: it must be a whole number of seconds")
    return int(text)
