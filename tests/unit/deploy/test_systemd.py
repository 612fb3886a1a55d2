"""The systemd units: judged by systemd's own tools, and consistent with the product."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from quafka.settings import PROGRAMS, known_to_any
from quafka.sources import load, variable
from tests.support.needs import program

SYSTEMD = Path(__file__).parents[3] / "deploy" / "systemd"
EXAMPLES = SYSTEMD / "examples"
UNITS = ("broker", "gateway", "console")
WORST_EXPOSURE = 1.5
COMMAND = "/opt/quafka/bin/quafka"


def unit(name: str) -> str:
    return (SYSTEMD / f"quafka-{name}.service").read_text()


def values(text: str, key: str) -> list[str]:
    """The values of a key in a unit."""
    return re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)


def paths(name: str) -> list[list[str]]:
    """The lines of a file of sysusers.d or tmpfiles.d, in words."""
    lines = (SYSTEMD / name).read_text().splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]


def run(*command: str | Path) -> str:
    tool, *arguments = map(str, command)
    done = subprocess.run(
        [program(tool), *arguments], capture_output=True, text=True, check=False,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units with their examples in a folder, and a command that exists."""
    for file in SYSTEMD.glob("*.service"):
        text = file.read_text()
        assert COMMAND in text
        (tmp_path / file.name).write_text(text.replace(COMMAND, "/bin/true"))
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.mark.needs("systemd-analyze")
def test_systemd_understands_the_units_and_the_examples(installed: Path) -> None:
    files = sorted(installed.glob("*.service"))
    assert len(files) == len(UNITS)
    # It prints what it ignores, such as a key with a mistake, and does not fail for it.
    shown = run("systemd-analyze", "verify", "--man=no", *files)
    assert [line for line in shown.splitlines() if str(installed) in line or "quafka" in line] == []


@pytest.mark.needs("systemd-analyze")
def test_verify_would_find_a_mistake(installed: Path) -> None:
    file = installed / "quafka-broker.service"
    file.write_text(file.read_text().replace("ProtectHome=", "ProtectHouse="))
    assert "ProtectHouse" in run("systemd-analyze", "verify", "--man=no", file)


@pytest.mark.needs("systemd-analyze")
@pytest.mark.parametrize("name", UNITS)
def test_the_exposure_is_low(name: str) -> None:
    file = SYSTEMD / f"quafka-{name}.service"
    shown = run("systemd-analyze", "security", "--offline=yes", file)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", shown)
    assert found, shown
    assert float(found[1]) <= WORST_EXPOSURE


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_runs_its_program_with_its_file(name: str) -> None:
    text = unit(name)
    assert values(text, "ExecStart") == [f"{COMMAND} {name} --config /etc/quafka/{name}.toml"]
    assert values(text, "Type") == ["notify"]
    assert values(text, "User") == [paths("sysusers.conf")[0][1]]
    known = [words[1] for words in paths("tmpfiles.conf")]
    assert f"/var/lib/{values(text, 'StateDirectory')[0]}" in known
    assert f"/etc/quafka/{name}.toml" in known


@pytest.mark.parametrize("name", UNITS)
def test_its_file_has_settings_of_the_program(name: str) -> None:
    file = SYSTEMD / "config" / f"{name}.toml"
    effective = load(PROGRAMS[name], {"config": str(file)}, {})  # a setting of another fails
    known = [words[1] for words in paths("tmpfiles.conf")]
    folder = values(unit(name), "StateDirectory")[0]
    for path in re.findall(r'"(/[^"]+)"', file.read_text()):
        assert path in known or path.startswith(f"/var/lib/{folder}"), path
    assert any(source.startswith("file") for source in effective.sources.values())


def test_programs_that_differ_only_in_their_names_are_equally_hardened() -> None:
    """A key that one unit has and another lacks is a mistake, except for these."""
    apart = {
        "After", "BindReadOnlyPaths", "Description", "ExecStart", "InaccessiblePaths",
        "StateDirectory", "TemporaryFileSystem", "TimeoutStartSec", "WorkingDirectory",
    }  # fmt: skip
    seen = {
        tuple(
            line for line in unit(name).splitlines()
            if "=" in line and not line.startswith("#") and line.split("=")[0] not in apart
            and line != "SystemCallFilter=setpriority"  # for console.nice
        )
        for name in UNITS
    }  # fmt: skip
    assert len(seen) == 1


def test_each_credential_of_an_example_is_used_by_a_setting() -> None:
    known = {variable(name) for name in known_to_any()}
    files = sorted(EXAMPLES.glob("*.d/*.conf"))
    assert files
    for file in files:
        text = file.read_text()
        assert (SYSTEMD / file.parent.name.removesuffix(".d")).exists()
        loaded = {value.partition(":")[0] for value in values(text, "LoadCredential")}
        given = dict(value.split("=", 1) for value in values(text, "Environment"))
        assert given.keys() <= known
        named = {v.removeprefix("%d/") for v in given.values() if v.startswith("%d/")}
        assert named == loaded
