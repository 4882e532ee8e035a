"""``carillon login``, ``context``, ``whoami`` and ``request``.

Covers app.client.contexts, app.client.connection, app.client.errors, app.cli.options.
"""

import stat
from pathlib import Path

import pytest

from app.client.connection import query
from app.client.contexts import (
    Asked,
    Context,
    Contexts,
    config_path,
    find_target,
    read_contexts,
    server_url,
    write_contexts,
)
from app.client.errors import ClientError
from tests.support.carillon import ADMIN_TOKEN, Carillon
from tests.support.command_line import CommandLine


async def test_a_context_is_stored_and_used(cli: CommandLine, standing: Carillon) -> None:
    """For its owner only; then no option is needed. Another one is chosen, and forgotten."""
    file = cli.folder / "XDG_CONFIG_HOME" / "carillon" / "config.toml"
    done = await cli("login", cli.server, "--token-stdin", stdin=f"{ADMIN_TOKEN}\n", environ={})
    assert (0, "", True) == (done.code, done.out, "Logged in to" in done.err)
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    me = await standing.call("GET", "/me/")
    assert me == (await cli("whoami", "--json", environ={})).json()
    assert cli.server in (await cli("whoami", environ={})).out
    await cli("login", cli.server, "--token", ADMIN_TOKEN, "--context", "other", environ={})
    listed = await cli("context", "list", "-o", "jsonl", environ={})
    assert (2, False) == (len(listed.out.splitlines()), ADMIN_TOKEN in listed.out)
    name = cli.server.removeprefix("http://")
    assert 0 == (await cli("context", "use", name, environ={})).code
    assert 0 == (await cli("logout", environ={})).code
    unknown = await cli("schedule", "list", "--context", name, environ={})
    assert (3, True) == (unknown.code, "other" in unknown.err)
    assert 0 == (await cli("--context", "other", "whoami", environ={})).code


async def test_a_refused_login_stores_nothing(cli: CommandLine) -> None:
    """A wrong token is 4; without a server the command says how to name one."""
    done = await cli("login", cli.server, "--token", "wrong", environ={})
    assert (4, False) == (done.code, (cli.folder / "XDG_CONFIG_HOME").exists())
    lost = await cli("schedule", "list", environ={})
    assert (2, True) == (lost.code, "No server is known.\n  Log in with `carillon login URL`" in lost.err)


async def test_a_request_is_sent_as_it_is(cli: CommandLine) -> None:
    """Below /api/v1 or by its whole path; the answer goes to stdout and the status decides the exit code."""
    done = await cli("request", "post", "/schedules/preview/", "-d", '{"every": "5m"}')
    assert (0, True) == (done.code, '"next_runs"' in done.out)
    assert (0, '{"status":"ok"}\n') == ((live := await cli("request", "GET", "/health/live")).code, live.out)
    missing = await cli("request", "GET", "/workflows/999999/", "-i")
    assert (3, True, True) == (missing.code, missing.out.startswith("HTTP/1.1 404\n"), '"not_found"' in missing.out)


def test_the_order_of_servers_and_tokens(tmp_path: Path) -> None:
    """Options, variables, the named context, the current one; a token goes to its own server only."""
    folder = {"XDG_CONFIG_HOME": str(tmp_path), "CARILLON_DATA_DIR": str(tmp_path / "data")}
    contexts = {"a": Context("http://a", "ta"), "b": Context("http://b", 't"b\\')}
    write_contexts(folder, Contexts("a", contexts))
    assert Contexts("a", contexts) == read_contexts(folder)
    variables = {**folder, "CARILLON_URL": "http://e", "CARILLON_TOKEN": "te"}

    def found(environ: dict[str, str], **asked: str) -> tuple[str, str]:
        target = find_target(Asked(**asked), environ)
        return target.url, target.token

    assert ("http://s", "ts") == found(variables, server="http://s", token="ts", context="b")
    assert ("http://e", "te") == found(variables, context="b")
    assert ("http://b", 't"b\\') == found(folder, context="b")
    assert ("http://a", "ta") == found(folder)
    assert ("http://b", 't"b\\') == found(folder, server="http://b/")
    assert ("http://c", "") == found(folder, server="http://c")


def test_the_server_of_this_machine_is_found(tmp_path: Path) -> None:
    """With the admin's token of its data folder, at the address that it wrote down; a named server never gets it."""
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "CARILLON_DATA_DIR": str(tmp_path)}
    with pytest.raises(ClientError, match="No server is known"):
        find_target(Asked(), environ)
    (tmp_path / "admin-token").write_text("secret\n")
    assert "http://127.0.0.1:8000" == find_target(Asked(), environ).url
    (tmp_path / "api-url").write_text("http://127.0.0.1:8123\n")
    local = find_target(Asked(), environ)
    assert ("http://127.0.0.1:8123", "secret") == (local.url, local.token)
    assert "" == find_target(Asked(server="http://127.0.0.1:8123"), environ).token


@pytest.mark.parametrize("text", ["ftp://host", "http://", "http://h:x", "http://user@host", "http://h?q=1", "a b"])
def test_addresses_are_checked(text: str) -> None:
    """Only those of HTTP servers are taken."""
    with pytest.raises(ClientError, match="is not the address of a server"):
        server_url(text)


def test_a_file_that_is_not_valid_is_named(tmp_path: Path) -> None:
    """With its path; a query leaves out what has no value."""
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    config_path(environ).parent.mkdir()
    config_path(environ).write_text("current = 1")
    with pytest.raises(ClientError, match=str(config_path(environ))):
        read_contexts(environ)
    assert "?a=1&b=x&b=y+z&d=true" == query({"a": 1, "b": ["x", "y z"], "c": None, "d": True, "e": ""})
