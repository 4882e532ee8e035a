"""How the console is served: caching, encodings, headers, unknown addresses, and what there is without a build.

Covers app.console.bundle, app.console.pages.
"""

import gzip
import os
from pathlib import Path

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.console.bundle import Bundle
from app.console.pages import NOT_BUILT, console_router
from tests.support.carillon import Carillon

HTML = {"Accept": "text/html,application/xhtml+xml"}
SCRIPT = b"console.log(1)\n" * 100


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A small build."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html><title>Carillon</title>")
    (tmp_path / "assets" / "index-abc.js").write_bytes(SCRIPT)
    (tmp_path / "assets" / "index-abc.js.gz").write_bytes(gzip.compress(SCRIPT))
    (tmp_path / "assets" / "index-abc.js.br").write_bytes(b"brotli")
    (tmp_path / "version.json").write_text('{"build": "1"}')
    return tmp_path


def client(folder: Path) -> TestClient[Litestar]:
    """A client of the pages of this build."""
    return TestClient(Litestar([console_router(Bundle(folder))], openapi_config=None))


def test_hashed_files_are_kept_and_pages_are_not(built: Path) -> None:
    """The names of assets change with their content; the page and the version must be asked for each time."""
    with client(built) as browser:
        kept = browser.get("/console/assets/index-abc.js", headers={"Accept-Encoding": "identity"})
        assert "public, max-age=31536000, immutable" == kept.headers["cache-control"]
        assert SCRIPT == kept.content
        for path in ("/console/", "/console", "/console/version.json"):
            assert "no-store" == browser.get(path, headers=HTML).headers["cache-control"]


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip, br", "br"),
        ("gzip", "gzip"),
        ("br;q=0, gzip", "gzip"),
        ("identity", None),
        ("", None),
        ("gzip;q=0.0", None),
    ],
)
def test_the_best_accepted_encoding_is_sent(built: Path, accepted: str, encoding: str | None) -> None:
    """A weight of zero refuses an encoding, and proxies are told that the answer depends on the header."""
    found = Bundle(built).file("assets/index-abc.js")
    assert found is not None
    assert encoding == found.encoding_for(accepted)
    with client(built) as browser:
        answer = browser.get("/console/version.json", headers={"Accept-Encoding": accepted})
        assert "Accept-Encoding" == answer.headers["vary"]


@pytest.mark.parametrize("path", ["/console/", "/console/schedules/1?q=x", "/console/index.html"])
def test_every_address_of_the_front_end_is_its_page(built: Path, path: str) -> None:
    """The front end decides what its addresses mean."""
    with client(built) as browser:
        answer = browser.get(path, headers=HTML)
        assert (200, "text/html; charset=utf-8") == (answer.status_code, answer.headers["content-type"])
        assert "<title>Carillon</title>" in answer.text


@pytest.mark.parametrize(
    ("path", "accept"),
    [
        ("/console/assets/gone.js", "text/html"),
        ("/console/nothing.json", "application/json"),
        ("/console/../pyproject.toml", "*/*"),
        ("/console/assets/%2e%2e/%2e%2e/bundle.py", "text/html"),
    ],
)
def test_what_is_not_there_is_not_answered_with_a_page(built: Path, path: str, accept: str) -> None:
    """A script that an upgrade has removed is 404, and no file outside of the build can be asked for."""
    with client(built) as browser:
        assert 404 == browser.get(path, headers={"Accept": accept}).status_code


def test_a_browser_at_the_root_is_sent_to_the_console(built: Path) -> None:
    """Programs get 404 there, as before."""
    with client(built) as browser:
        answer = browser.get("/", headers=HTML, follow_redirects=False)
        assert (302, "/console/") == (answer.status_code, answer.headers["location"])
        assert 404 == browser.get("/", headers={"Accept": "application/json"}).status_code


def test_without_a_build_the_page_says_how_to_build(tmp_path: Path) -> None:
    """The status tells monitors that nothing is wrong with the API itself."""
    with client(tmp_path / "none") as browser:
        answer = browser.get("/console/", headers=HTML)
        assert (503, NOT_BUILT) == (answer.status_code, answer.text)
        assert "make console" in NOT_BUILT


def test_another_build_is_read_without_a_restart(built: Path) -> None:
    """The index is written last, so that its time tells one build from another."""
    with client(built) as browser:
        assert "Carillon" in browser.get("/console/", headers=HTML).text
        (built / "index.html").write_text("<title>newer</title>")
        os.utime(built / "index.html", (1, 1))
        assert "newer" in browser.get("/console/", headers=HTML).text


async def test_the_api_serves_it_with_a_strict_policy(standing: Carillon) -> None:
    """Scripts and styles only as files of this server; no other site can frame the page or learn where it was."""
    answer = await standing.raw("GET", "/console/", headers=HTML)
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert {"'self'"} == {policy[name] for name in ("default-src", "script-src", "style-src", "connect-src")}
    assert {"'none'"} == {policy[name] for name in ("frame-ancestors", "object-src", "base-uri")}
    assert "unsafe" not in answer.headers["content-security-policy"]
    expected = {
        "cross-origin-opener-policy": "same-origin",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    assert expected == {name: answer.headers[name] for name in expected}
