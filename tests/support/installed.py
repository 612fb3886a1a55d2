"""Quafka as users install it: by the container file's own commands, in a folder or in its image.

Both are commands for `Cluster` (`broker_command`, `gateway_command`), which run the installed
`quafka` in place of this repository's: `python -m tests.support.installed HOW FOLDER PYTHON -m
quafka ARGUMENTS`.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NoReturn

from tests.support.alone import alone
from tests.support.machine import unable
from tests.support.needs import FETCH_SECONDS, CannotFetchError, program

ROOT = Path(__file__).parents[2]
CONTAINER = ROOT / "deploy" / "container"
IMAGE = "localhost/quafka:local"
BASE = "localhost/debian:bookworm"
USER = 10001
"""Whom the image's programs run as."""
_BUILD_SECONDS = 4 * FETCH_SECONDS
_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
_READY = "--ready-fd"


class Installed:
    """One way of it: `how` is `folder` or `image`; programs may write below `folder` only."""

    def __init__(self, how: str, folder: Path) -> None:
        self._how = how
        self._folder = folder
        self.command = (sys.executable, "-m", __name__, how, str(folder))

    def own(self) -> None:
        """Hand what is in the folder to whom the programs run as."""
        if self._how == "image":
            for path in (self._folder, *self._folder.rglob("*")):
                os.chown(path, USER, USER)

    def run(self, *args: str, stdin: str = "") -> str:
        """Run a command of `quafka`, which must succeed; what it prints."""
        done = subprocess.run(
            [*self.command, sys.executable, "-m", "quafka", *args],
            input=stdin, capture_output=True, text=True, check=False, cwd=ROOT,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


# In a folder


@cache
def install() -> None:
    """Run the container file's commands that install the wheel, in a folder of this environment.

    Raises:
        CannotFetchError: pip cannot get what the wheel needs.
    """
    folder = _installed()
    with alone(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        command = (
            _instruction("python3 -m venv /opt/pip")
            .replace("/opt/", f"{folder}/")
            .replace("/wheel", f"{folder}/wheel")
        )
        try:
            subprocess.run(
                ["sh", "-c", command], cwd=ROOT, env=_environment(), capture_output=True,
                text=True, check=True, timeout=_BUILD_SECONDS,
            )  # fmt: skip
        except subprocess.CalledProcessError as e:
            raise CannotFetchError(f"the wheel cannot be installed: {e.stderr}") from e
        shutil.copytree(folder / "own", folder / "quafka", dirs_exist_ok=True)  # as COPY does


def packages() -> Path:
    """Where the wheel's packages are installed."""
    (found,) = (_installed() / "quafka" / "lib").glob("python3.*/site-packages")
    return found


def _instruction(start: str) -> str:
    """The container file's RUN that starts like this, as a command of a shell."""
    text = (CONTAINER / "Containerfile").read_text()
    (found,) = re.findall(rf"^RUN ({re.escape(start)}(?:.*\\\n)*.*)$", text, re.MULTILINE)
    return str(found)


def _installed() -> Path:
    return Path(sys.prefix) / "installed"


def _environment() -> dict[str, str]:
    """This process's, in which Python does not find the repository's packages."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


# In the image


@cache
def build() -> str:
    """Build the image once in each run; why this machine cannot, if so.

    The build has no network but this machine's, whose authorities it trusts.
    """
    if os.geteuid():
        return "build an image: that takes root"
    probed = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "true"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if probed.returncode:
        return f"build an image: {probed.stderr.strip()}"
    with alone(_containers()):
        _configure()
        trusted: list[str] = []
        if _AUTHORITIES.exists():
            pip = _containers() / "pip.conf"
            pip.write_text("[global]\ncert = /run/authorities.pem\n")
            trusted += ["--volume", f"{_AUTHORITIES}:/run/authorities.pem:ro"]
            trusted += ["--volume", f"{pip}:/etc/pip.conf:ro"]
        built = subprocess.run(
            ["sh", CONTAINER / "build.sh", *trusted], env=_engine(), check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_BUILD_SECONDS,
        )  # fmt: skip
        if built.returncode and "STEP" not in built.stdout:  # not a line of the container file ran
            return f"build an image's base: {built.stdout.strip()[-200:]}"
        assert built.returncode == 0, built.stdout
        subprocess.run(  # what earlier builds have left
            _podman("image", "prune", "--force"), env=_engine(), check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        began = subprocess.run(
            _podman("run", "--rm", BASE, "true"),
            env=_engine(),
            capture_output=True,
            text=True,
            check=False,
        )
    return f"run a container: {began.stderr.strip()}" if began.returncode else ""


def image_or_skip() -> None:
    """Skip a test if this machine cannot build or run the image."""
    if reason := build():
        unable(reason)


def is_healthy(operations: str) -> bool:
    """Whether the image's health check finds the program at this address ready."""
    check = _podman(
        "run", "--rm", "--env", f"QUAFKA_OPS_LISTEN={operations}", "--entrypoint", "python3",
        IMAGE, "/opt/quafka/health.py",
    )  # fmt: skip
    return subprocess.run(check, env=_engine(), check=False).returncode == 0


def remove_containers(folder: Path) -> None:
    """Remove the containers of a test, which outlive their commands if these are killed."""
    listed = _podman("ps", "--all", "--quiet", "--filter", f"label=folder={folder}")
    ids = subprocess.check_output(listed, env=_engine(), text=True).split()
    if ids:
        subprocess.run(_podman("rm", "--force", *ids), env=_engine(), check=True)


def _containers() -> Path:
    """Where images and containers of the tests are."""
    return Path(sys.prefix) / "containers"


def _configure() -> None:
    """Write podman's configuration: everything is in folders of the tests' own."""
    folder = _containers()
    folder.mkdir(exist_ok=True)
    files, processes = (
        min(most, resource.getrlimit(kind)[1])
        for kind, most in ((resource.RLIMIT_NOFILE, 1 << 20), (resource.RLIMIT_NPROC, 4096))
    )
    (folder / "containers.conf").write_text(
        "[containers]\n"
        # Without CAP_SYS_RESOURCE a container's limits may not be above these; podman sets more.
        f'default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]\n'
        'netns = "host"\n'
        "[engine]\n"
        'runtime = "runc"\n'
        'cgroup_manager = "cgroupfs"\n'  # others need systemd
        'events_logger = "file"\n'
        'tmp_dir = "/run/quafka-tests/libpod"\n'
    )
    (folder / "storage.conf").write_text(
        "[storage]\n"
        'driver = "overlay"\n'
        f'graphroot = "{folder / "storage"}"\n'
        'runroot = "/run/quafka-tests/storage"\n'  # podman refuses a longer path
    )


def _engine() -> dict[str, str]:
    folder = _containers()
    return {
        **_environment(),
        "BUILDAH_ISOLATION": "chroot",
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
    }


def _podman(*args: str) -> list[str]:
    return [program("podman"), *args]


def _in_container(folder: Path, args: list[str]) -> list[str]:
    """The command that runs `quafka` locked down, as compose.yaml does.

    The descriptor for `--ready-fd` is 3 in the container.
    """
    options = ["--rm", "--interactive", "--read-only", "--cap-drop", "ALL"]
    options += ["--security-opt", "no-new-privileges", "--no-healthcheck"]
    options += ["--label", f"folder={folder}", "--volume", f"{folder}:{folder}", "--env", "AWS_*"]
    if _READY in args:
        at = args.index(_READY) + 1
        os.dup2(int(args[at]), 3)
        options += ["--preserve-fds", "1"]
        args = [*args[:at], "3", *args[at + 1 :]]
    return _podman("run", *options, IMAGE, *args)


def main(how: str, folder: str, *command: str) -> NoReturn:
    """Become `quafka`, as it is installed; `command` is how the repository's is run."""
    args = [*command[command.index("quafka") + 1 :]]
    if how == "image":
        podman = _in_container(Path(folder), args)
        os.execve(podman[0], podman, _engine())
    quafka = str(_installed() / "quafka" / "bin" / "quafka")
    os.execve(quafka, [quafka, *args], _environment())


if __name__ == "__main__":
    main(*sys.argv[1:])
