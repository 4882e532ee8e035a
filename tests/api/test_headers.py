"""Headers that protect whoever looks at an answer with a browser.

Covers app.api.application.
"""

import base64
import hashlib
import re

import pytest

from tests.support.carillon import Carillon


@pytest.mark.parametrize(
    "path", ["/health/live", "/metrics", "/schema", "/schema/openapi.json", "/api/v1/me/", "/api/v1/nothing/", "/x"]
)
async def test_no_browser_guesses_what_an_answer_is(standing: Carillon, path: str) -> None:
    """Errors included."""
    answer = await standing.raw("GET", path)
    assert "nosniff" == answer.headers["x-content-type-options"]
    assert "server" not in answer.headers


@pytest.mark.parametrize("path", ["/schema", "/schema/openapi.json"])
async def test_the_schema_allows_nothing_but_its_own_style(standing: Carillon, path: str) -> None:
    """No script, no frame, no address given away."""
    answer = await standing.raw("GET", path)
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert ("'none'", "'none'", "'none'") == (policy["default-src"], policy["frame-ancestors"], policy["base-uri"])
    assert {"default-src", "style-src", "base-uri", "form-action", "frame-ancestors"} == policy.keys()
    assert ("no-referrer", "DENY") == (answer.headers["referrer-policy"], answer.headers["x-frame-options"])


async def test_the_style_of_the_page_is_the_one_that_is_allowed(standing: Carillon) -> None:
    """A browser compares the hash; there is one style and no script."""
    answer = await standing.raw("GET", "/schema")
    style = re.findall(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style[0].encode()).digest()).decode()
    assert 1 == len(style)
    assert f"style-src 'sha256-{digest}'" in answer.headers["content-security-policy"]
    assert "<script" not in answer.text
    assert "style=" not in answer.text
