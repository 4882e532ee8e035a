"""Redis URLs: one server, a master that Sentinels know, or a Redis Cluster."""

import re
from enum import StrEnum
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec

# Parameters that name a file, which must be readable at the start.
FILE_PARAMETERS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_TLS_PARAMETERS = (*FILE_PARAMETERS, "ssl_cert_reqs", "ssl_check_hostname")
_SENTINEL_PARAMETERS = ("sentinel_username", "sentinel_password")
_URL = re.compile(r"(?P<scheme>[a-z0-9+]+)://(?P<authority>[^/?#]*)(?P<path>/[^?#]*)?(\?(?P<query>[^#]*))?")
_HOST = re.compile(r"(\[(?P<ipv6>[^\]]+)\]|(?P<host>[^:\[\]]+))(:(?P<port>[0-9]+))?")
_HIGHEST_PORT = 65_535
_HINT = (
    "is not a valid URL. If the user name or the password contains one of / ? # @ : % write it percent-encoded, such "
    "as %2F for /"
)


class RedisUrlError(ValueError):
    """A URL cannot be used. The message names the parameter and quotes no value, which may be a password."""

    code = "bad_redis_url"


class Deployment(StrEnum):
    """How Redis is run, which decides how its address is found."""

    SERVER = "server"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


_SCHEMES = {
    **dict.fromkeys(("redis", "rediss", "unix"), Deployment.SERVER),
    **dict.fromkeys(("redis+sentinel", "rediss+sentinel"), Deployment.SENTINEL),
    **dict.fromkeys(("redis+cluster", "rediss+cluster"), Deployment.CLUSTER),
}
_DEFAULT_PORTS = {Deployment.SENTINEL: 26_379, Deployment.CLUSTER: 6379}


class RedisUrl(msgspec.Struct, frozen=True, kw_only=True):
    """What a URL says."""

    deployment: Deployment
    # A URL for redis-py. With Sentinels and in a cluster its host is replaced by the one that is found.
    server_url: str
    # The Sentinels, or nodes of the cluster, in the order in which they are asked.
    addresses: tuple[tuple[str, int], ...] = ()
    # The name under which Sentinels know the master.
    master: str = ""
    sentinel_username: str = ""
    sentinel_password: str = ""
    parameters: dict[str, str] = {}

    @property
    def files(self) -> dict[str, str]:
        """The files that parameters name, by parameter."""
        return {name: self.parameters[name] for name in FILE_PARAMETERS if self.parameters.get(name)}


def parse(url: str) -> RedisUrl:
    """Return what a URL says, or raise ``RedisUrlError`` for what is not understood."""
    scheme = url.partition("://")[0]
    deployment = _SCHEMES.get(scheme)
    if deployment is None:
        raise RedisUrlError(f"must start with one of {', '.join(f'{known}://' for known in _SCHEMES)}")
    if deployment is Deployment.SERVER:
        _require_port(url)
        return RedisUrl(deployment=deployment, server_url=url)
    match = _URL.fullmatch(url)
    if match is None:
        raise RedisUrlError(_HINT)
    user, _, host_list = match["authority"].rpartition("@")
    addresses = tuple(_address(part, _DEFAULT_PORTS[deployment]) for part in host_list.split(","))
    parameters = _parameters(match["query"] or "", scheme, deployment)
    master, database = _path(match["path"] or "", deployment)
    return RedisUrl(
        deployment=deployment,
        server_url=_server_url(scheme.partition("+")[0], user, addresses[0], database, parameters),
        addresses=addresses,
        master=master,
        sentinel_username=parameters.get("sentinel_username", ""),
        sentinel_password=parameters.get("sentinel_password", ""),
        parameters=parameters,
    )


def _require_port(url: str) -> None:
    """Refuse a URL whose password would be read as a part of its host."""
    try:
        _ = urlsplit(url).port
    except ValueError:
        raise RedisUrlError(_HINT) from None


def _address(part: str, default_port: int) -> tuple[str, int]:
    match = _HOST.fullmatch(part)
    if match is None:
        raise RedisUrlError(_HINT)
    port = int(match["port"] or default_port)
    if not 0 < port <= _HIGHEST_PORT:
        raise RedisUrlError(f"has a wrong port: it must be between 1 and {_HIGHEST_PORT}")
    return unquote(match["ipv6"] or match["host"]), port


def _parameters(query: str, scheme: str, deployment: Deployment) -> dict[str, str]:
    parameters: dict[str, str] = {}
    known = (*_TLS_PARAMETERS, "client_name", *(_SENTINEL_PARAMETERS if deployment is Deployment.SENTINEL else ()))
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            raise RedisUrlError(f"has the parameter {name}, which Carillon does not understand. Remove it")
        if name in parameters:
            raise RedisUrlError(f"has the parameter {name} twice")
        if name in _TLS_PARAMETERS and not scheme.startswith("rediss"):
            raise RedisUrlError(f"has the parameter {name}, which needs the scheme rediss+{deployment}://")
        parameters[name] = value
    return parameters


def _path(path: str, deployment: Deployment) -> tuple[str, int]:
    """Return the name of the master and the number of the database."""
    parts = [unquote(part) for part in path.strip("/").split("/") if part]
    master = ""
    if deployment is Deployment.SENTINEL:
        if not parts:
            raise RedisUrlError("must name the master after the hosts, such as /mymaster/0")
        master = parts.pop(0)
    text = parts.pop(0) if parts else "0"
    if parts or not (text.isascii() and text.isdigit()):
        raise RedisUrlError("has a wrong path: its last part must be the number of a database")
    if deployment is Deployment.CLUSTER and int(text):
        raise RedisUrlError("has a wrong path: a Redis Cluster has the database 0 only")
    return master, int(text)


def _server_url(scheme: str, user: str, address: tuple[str, int], database: int, parameters: dict[str, str]) -> str:
    host = f"[{address[0]}]" if ":" in address[0] else quote(address[0])
    query = {name: value for name, value in parameters.items() if name not in _SENTINEL_PARAMETERS}
    login = f"{user}@" if user else ""
    end = f"?{urlencode(query, quote_via=quote)}" if query else ""
    return f"{scheme}://{login}{host}:{address[1]}/{database}{end}"
