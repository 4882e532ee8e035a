"""A base image with Python, made of Debian's packages, for machines that reach no registry of images."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SUITE = "trixie"
PACKAGES = "python3,python3-venv,ca-certificates"
PYTHON_PATHS = "usr/local/lib/python3.13/dist-packages"
# What the official images of Python have and Debian's package does not: `python`, and a pip that pip can remove.
HOOK = (
    'rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED && ln -s /usr/bin/python3 "$1/usr/local/bin/python" '
    f'&& mkdir -p "$1/{PYTHON_PATHS}" && cp -r "{{pip}}/." "$1/{PYTHON_PATHS}/"'
)


def make_base(name: str) -> None:
    """Make the image, from the mirror of Debian that this machine uses, and give it a name."""
    with tempfile.TemporaryDirectory(prefix="carillon-base-") as folder:
        archive, pip = Path(folder) / "base.tar", Path(folder) / "pip"
        unpack_pip(pip)
        hook = HOOK.format(pip=pip)
        source = f"deb {mirror()} {SUITE} main"
        run(
            "mmdebstrap",
            "--variant=minbase",
            f"--include={PACKAGES}",
            f"--customize-hook={hook}",
            SUITE,
            str(archive),
            source,
        )
        container = run("buildah", "from", "scratch").strip()
        run("buildah", "add", container, str(archive), "/")
        run("buildah", "commit", "--rm", "--quiet", container, name)


def mirror() -> str:
    """Return the address of Debian's packages in the settings of this machine."""
    found = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Component: main")
    return found.splitlines()[0]


def unpack_pip(target: Path) -> None:
    """Unpack the wheel of pip, which makes pip one that can be uninstalled."""
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, "pip")
        (wheel,) = Path(folder).glob("pip-*.whl")
        shutil.unpack_archive(wheel, target, "zip")


def run(*command: str) -> str:
    """Run a command, show what it says if it fails, and return what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(
            f"{' '.join(command[:3])} ... ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return done.stdout
