"""The Debian package: built by its script, unpacked, and run from there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.needs import FETCH_SECONDS, program

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
SYSTEMD = ROOT / "deploy" / "systemd"


def run(*command: str | Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
        timeout=4 * FETCH_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.needs("dpkg-deb")
def test_the_package_has_what_the_units_need(tmp_path: Path) -> None:
    package = run("sh", "deploy/debian/build.sh", tmp_path).strip()
    tool = program("dpkg-deb")
    assert run(tool, "--field", package, "Package").strip() == "quafka"
    root = tmp_path / "root"
    run(tool, "--extract", package, root)
    units = root / "usr/lib/systemd/system"
    for unit in SYSTEMD.glob("*.service"):
        assert (units / unit.name).read_text() == unit.read_text()
    for name in ("sysusers", "tmpfiles"):
        there = root / f"usr/lib/{name}.d/quafka.conf"
        assert there.read_text() == (SYSTEMD / f"{name}.conf").read_text()
    run(tool, "--control", package, tmp_path / "control")
    kept = (tmp_path / "control" / "conffiles").read_text().splitlines()
    assert kept == [f"/etc/quafka/{file.name}" for file in sorted(SYSTEMD.glob("config/*.toml"))]
    # The command is for its place: no file that runs names the one where it was built.
    shebang = (root / "opt/quafka/bin/quafka").read_text().splitlines()[0]
    assert shebang == "#!/opt/quafka/bin/python"
    shown = run(root / "opt/quafka/bin/python", "-m", "quafka", "config", "console")
    assert "console.listen" in shown
    assert os.readlink(root / "usr/bin/quafka") == "/opt/quafka/bin/quafka"  # noqa: PTH115
