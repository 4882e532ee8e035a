"""Redis URLs: a server, Sentinels and a cluster are understood, and what is not is refused by its name.

Covers app.redis_url.
"""

import pytest

from app.config import SettingsError, load_settings
from app.redis_url import Deployment, RedisUrl, RedisUrlError, parse


@pytest.mark.parametrize("url", ["redis://:p%2F@h:1/2?socket_timeout=3", "rediss://u:p@h", "unix:///run/v.sock?db=1"])
def test_the_url_of_one_server_stays_as_it_is(url: str) -> None:
    """redis-py understands it."""
    assert RedisUrl(deployment=Deployment.SERVER, server_url=url) == parse(url)


def test_sentinels_have_a_login_of_their_own() -> None:
    """User and password before the hosts are those of the servers, on which the database number counts too."""
    url = parse("redis+sentinel://u:p%40q@s1:1,s2,[::1]:3/my%20master/5?sentinel_username=w&sentinel_password=x%2F")
    assert (("s1", 1), ("s2", 26_379), ("::1", 3)) == url.addresses
    assert ("my master", "w", "x/") == (url.master, url.sentinel_username, url.sentinel_password)
    assert "redis://u:p%40q@s1:1/5" == url.server_url


def test_a_cluster_is_known_by_some_of_its_nodes() -> None:
    """With TLS all of them have the same authority."""
    url = parse("rediss+cluster://:p@[fd00::1],n2:7000/?ssl_ca_certs=/ca.pem&client_name=bells")
    assert (("fd00::1", 6379), ("n2", 7000)) == url.addresses
    assert "rediss://:p@[fd00::1]:6379/0?ssl_ca_certs=%2Fca.pem&client_name=bells" == url.server_url
    assert {"ssl_ca_certs": "/ca.pem"} == url.files


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("http://h", r"redis\+sentinel://"),
        ("redis+sentinel://s1,s2", "name the master"),
        ("redis+sentinel://s1/m/first", "number of a database"),
        ("redis+sentinel://s1/m/0/1", "number of a database"),
        ("redis+sentinel://s1/m?db=secret", "parameter db"),
        ("redis+sentinel://s1/m?ssl_ca_certs=secret", r"ssl_ca_certs.*rediss\+sentinel"),
        ("redis+sentinel://s1:0/m", "port"),
        ("redis+sentinel://u:secret@/m", "not a valid URL"),
        ("redis+cluster://n1,n2/1", "database 0 only"),
        ("redis+cluster://n1?sentinel_password=secret", "sentinel_password"),
        ("redis+cluster://n1?client_name=a&client_name=b", "client_name twice"),
        ("redis+cluster://u:se/cret@n1:x", "not a valid URL"),
    ],
)
def test_what_is_not_understood_is_refused_by_its_name(url: str, named: str) -> None:
    """At the start, without the value, which may be a password."""
    with pytest.raises(RedisUrlError, match=named):
        parse(url)
    with pytest.raises(SettingsError, match="CARILLON_REDIS_URL") as refused:
        load_settings({"CARILLON_REDIS_URL": url})
    assert "secret" not in str(refused.value)


def test_a_certificate_that_cannot_be_read_is_refused() -> None:
    """Not at the first connection."""
    with pytest.raises(SettingsError, match="the file that ssl_ca_certs names cannot be read"):
        load_settings({"CARILLON_REDIS_URL": "rediss+cluster://n1?ssl_ca_certs=/nowhere/ca.pem"})
