"""The cookies of a session and of a login, and the check that a request by cookie comes from our own pages.

A browser sends a cookie with every request to its site, also with those that other sites cause. Two headers that no
script can forge say where a request comes from: ``Sec-Fetch-Site``, and in older browsers ``Origin``.
"""

from functools import lru_cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection
from litestar.datastructures import Cookie

from app.api.problems import CrossSiteError
from app.domain.login_attempts import ATTEMPT_SECONDS
from app.persistence.sessions import LONGEST_SECONDS

# With this prefix browsers accept the cookie only from this host, for all its paths, and over TLS.
SECURE_NAME = "__Host-carillon"
# For plain HTTP on the own machine, where there is no TLS.
LOOPBACK_NAME = "carillon"
# What the cookie of a login adds to the name.
LOGIN_SUFFIX = "-login"
# As RFC 6265bis spells them: browsers ignore the case, other readers of the header may not.
STRICT: Any = "Strict"
LAX: Any = "Lax"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
JSON = "application/json"
SAME_ORIGIN = "same-origin"
# A request that the user has made, by the address bar or a bookmark.
BY_USER = "none"

AnyConnection = ASGIConnection[Any, Any, Any, Any]


def session_secret(connection: AnyConnection) -> str | None:
    """Return the secret of the session's cookie, or None without one."""
    return connection.cookies.get(_name(connection)) or None


def cookie_for(connection: AnyConnection, secret: str | None) -> Cookie:
    """Return the cookie that stores a secret, or deletes the one that there is."""
    name = _name(connection)
    return Cookie(
        key=name,
        value=secret or "",
        path="/",
        httponly=True,
        secure=name == SECURE_NAME,
        samesite=STRICT,
        max_age=LONGEST_SECONDS if secret else 0,
    )


def login_attempt(connection: AnyConnection) -> str:
    """Return the attempt in the cookie of a login, or an empty text."""
    return connection.cookies.get(f"{_name(connection)}{LOGIN_SUFFIX}", "")


def login_cookie(connection: AnyConnection, attempt: str | None) -> Cookie:
    """Return the cookie that stores an attempt to log in at an identity provider, or deletes the one that there is.

    It must be sent with the request that the provider's page causes, which a strict one would not be.
    """
    name = _name(connection)
    return Cookie(
        key=f"{name}{LOGIN_SUFFIX}",
        value=attempt or "",
        path="/",
        httponly=True,
        secure=name == SECURE_NAME,
        samesite=LAX,
        max_age=ATTEMPT_SECONDS if attempt else 0,
    )


def origin_for_browser(connection: AnyConnection) -> str:
    """Return this server as the browser sees it. Sessions need TLS, which may end at a proxy, but for loopback."""
    scheme = "http" if _is_plain_loopback(connection) else "https"
    return f"{scheme}://{connection.headers.get('host', '')}"


def refuse_cross_site(connection: AnyConnection, *, by_cookie: bool = True) -> None:
    """Raise ``CrossSiteError`` for an unsafe request that another site may have caused.

    A request by cookie has to prove that it comes from our own pages, and its body is JSON, which no form of another
    site can send. Without a cookie it is refused only if it says that it does not: programs send neither header.
    """
    if connection.scope.get("method") in SAFE_METHODS:
        return
    site = connection.headers.get("sec-fetch-site")
    origin = connection.headers.get("origin")
    if site is not None:
        is_ours = site == SAME_ORIGIN or (site == BY_USER and not by_cookie)
    elif origin is not None:
        is_ours = origin in {origin_for_browser(connection), connection.app.state.public_origin}
    else:
        is_ours = not by_cookie
    if not is_ours:
        raise CrossSiteError
    if by_cookie and not _has_no_body_but_json(connection):
        raise CrossSiteError(CrossSiteError.not_json)


def _has_no_body_but_json(connection: AnyConnection) -> bool:
    headers = connection.headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind:
        return kind == JSON or (kind.startswith("application/") and kind.endswith("+json"))
    return headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers


def _name(connection: AnyConnection) -> str:
    return LOOPBACK_NAME if _is_plain_loopback(connection) else SECURE_NAME


def _is_plain_loopback(connection: AnyConnection) -> bool:
    return connection.scope["scheme"] == "http" and _is_loopback(connection.headers.get("host", ""))


@lru_cache(maxsize=256)
def _is_loopback(authority: str) -> bool:
    try:
        host = urlsplit(f"//{authority}").hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
