"""The bill of materials names everything that the lock names, with its hashes."""

from pathlib import Path

from tests.image.sbom import LEFT_OUT, bill

ROOT = Path(__file__).parents[2]


def test_every_locked_package_is_in_the_bill() -> None:
    """Once, with the version and at least one hash; what the image does not contain is left out."""
    lock = (ROOT / "requirements.lock").read_text()
    lines = [line for line in lock.splitlines() if "==" in line and not line.startswith((" ", "#"))]
    locked = sorted(line.split(" ")[0] for line in lines if line.partition("==")[0] not in LEFT_OUT)
    components = bill(lock, "1.2.3")["components"]
    assert locked == sorted(f"{one['name']}=={one['version']}" for one in components)
    assert all(one["hashes"] and one["purl"].startswith("pkg:pypi/") for one in components)
    assert sum(len(one["hashes"]) for one in components) <= lock.count("--hash=sha256:")


def test_a_condition_is_kept() -> None:
    """A package for one platform says so."""
    (one,) = bill("a==1 ; sys_platform == 'win32' \\\n    --hash=sha256:" + "0" * 64 + "\n", "1")["components"]
    assert [{"name": "carillon:condition", "value": "sys_platform == 'win32'"}] == one["properties"]
