"""``carillon apply``, ``plan`` and ``export`` over HTTP.

Covers app.cli.apply, app.cli.apply_database.
"""

import uuid
from pathlib import Path

from app.cli.apply import located
from app.services.declarations.files import Source
from tests.support.carillon import Carillon
from tests.support.command_line import CommandLine
from tests.support.declarations import NIGHTLY


async def test_files_are_planned_applied_and_exported(cli: CommandLine, tmp_path: Path) -> None:
    """8 while something would change, 0 afterwards; errors have the file and the line, and other files go on."""
    namespace = f"n{uuid.uuid4().hex[:10]}"
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.yaml").write_text(NIGHTLY.replace("namespace: shop", f"namespace: {namespace}"))
    planned = await cli("plan", "-f", str(folder))
    assert (8, True, True) == (planned.code, "+ schedule nightly" in planned.out, "Dry run" in planned.out)
    assert 0 == (await cli("apply", "-f", str(folder))).code
    unchanged = await cli("plan", "-f", str(folder))
    assert (0, True) == (unchanged.code, "2 unchanged" in unchanged.out)
    exported = await cli("export", "--namespace", namespace)
    assert (0, True) == (exported.code, "every: 1m" in exported.out)
    (folder / "b.yaml").write_text(f"namespace: {namespace}\nschedules: [{{name: s, workflow: nobody, every: 1m}}]")
    (folder / "a.yaml").write_text((folder / "a.yaml").read_text().replace("1m", "2m"))
    effects = (await cli("plan", "-f", str(folder / "a.yaml"))).out
    assert "~ schedule nightly  " in effects
    assert "    next run: " in effects
    assert "    slots removed: " in effects
    partly = await cli("apply", "-f", str(folder))
    assert (2, True) == (partly.code, f"{folder}/b.yaml:2: schedule 's': workflow: The namespace has no" in partly.err)
    assert "~ schedule nightly  interval_seconds: 60 -> 120" in partly.out or "1 changed" in partly.out
    (folder / "b.yaml").write_text(f"namespace: {namespace}\nschedules: [{{name: s, workflow: report, every: 1m}}]")
    both = await cli("apply", "-f", str(folder))
    assert (0, False) == (both.code, "no longer declared" in both.out)
    (folder / "b.yaml").unlink()
    pruned = await cli("apply", "-f", str(folder), "--prune")
    assert (0, True) == (pruned.code, "- schedule s" in pruned.out)


async def test_members_apply_as_themselves(cli: CommandLine, standing: Carillon, tmp_path: Path) -> None:
    """What is made is theirs; a refused token is 4."""
    member = await standing.member(f"m{uuid.uuid4().hex[:10]}")
    text = NIGHTLY.replace("namespace: shop", f"namespace: m{uuid.uuid4().hex[:10]}")
    token = member._headers["Authorization"].removeprefix("Bearer ")
    done = await cli("apply", "-f", "-", "--token", token, stdin=text)
    assert (0, True) == (done.code, "2 created" in done.out)
    me = await member.call("GET", "/me/")
    (made,) = (await member.call("GET", "/schedules/"))["items"]
    assert me["id"] == made["user_profile_id"]
    assert 4 == (await cli("apply", "-f", "-", "--token", "wrong", stdin=text)).code


def test_lines_are_those_of_the_file() -> None:
    """Of the second file too, if files are sent together."""
    sources = [Source("a.yaml", b"x: 1\ny: 2\n"), Source("b.yaml", b"z: 3\n")]
    assert ["a.yaml:2: wrong", "b.yaml:1: wrong", "a.yaml: wrong"] == [
        located(line, sources) for line in ("yaml: line 2: wrong", "yaml: line 5: wrong", "yaml: wrong")
    ]
