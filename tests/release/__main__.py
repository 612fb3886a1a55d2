"""`make dist`: wheel, sdist, SBOM and constraints, tried on every Python of this machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from tests.release import constraints, environments, interpreters, licences, smoke
from tests.release.build import ROOT, ReleaseError, build, digests, sources

DIST = ROOT / "dist"
_BIN = Path(sys.executable).parent
_RELEASE = "3.11"
"""The Python whose environment the list of materials describes: the oldest that is supported."""


class Release:
    """The steps of it, in their order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._env = environments.variables(folder)
        self._at = 0
        self._files: list[Path] = []
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        self._version = str(project["version"])
        self._extras = ",".join(project["optional-dependencies"])

    @property
    def wheel(self) -> Path:
        """The wheel in `dist`."""
        return self._files[1]

    def build(self) -> str:
        """Build twice."""
        self._at = sources(self._folder / "source")
        shutil.rmtree(DIST, ignore_errors=True)
        self._files = build(self._folder / "source", self._at, DIST)
        again = build(self._folder / "source", self._at, self._folder / "again")
        if digests(self._files) != digests(again):
            raise ReleaseError("two builds of the same sources differ")
        sizes = (f"{file.name} {file.stat().st_size:,} bytes" for file in self._files)
        return f"{', '.join(sizes)}; built twice, with the same bytes"

    def check(self) -> str:
        """Check metadata and contents."""
        environments.command([_BIN / "twine", "check", "--strict", *self._files], self._env)
        # W009: the wheel has several packages on purpose (ADR 1).
        environments.command(
            [_BIN / "check-wheel-contents", "--ignore", "W009", self.wheel], self._env
        )
        return "twine and check-wheel-contents find nothing"

    def try_on(self, version: str) -> str:
        """Install the wheel for one version of Python, and use it."""
        python = interpreters.find(version)
        if python is None:
            return "not on this machine"
        folder = self._folder / f"python-{version}"
        own = environments.clean(folder, python, self.wheel, "", constraints.FILE, self._env)
        count = smoke.imports(own, "packages", self._env)
        smoke.use([str(own.parent / "quafka")], self._version, self._env)
        return f"{count} packages imported, records written and read; {environments.size(folder)}"

    def try_complete(self) -> str:
        """Install the wheel with all extras; write the list of materials."""
        python = interpreters.find(_RELEASE) or sys.executable
        folder = self._folder / "complete"
        own = environments.clean(
            folder, python, self.wheel, f"[{self._extras}]", constraints.FILE, self._env
        )
        count = smoke.imports(own, "all", self._env)
        self._inspect(folder)
        materials = DIST / f"quafka-{self._version}.cdx.json"
        environments.command(
            [_BIN / "cyclonedx-py", "environment", "--output-reproducible", "--validate",
             "--pyproject", ROOT / "pyproject.toml", "--output-file", materials, own],
            {**self._env, "SOURCE_DATE_EPOCH": str(self._at)},
        )  # fmt: skip
        return f"{count} modules imported; {environments.size(folder)}; {materials.name} is valid"

    def _inspect(self, folder: Path) -> None:
        """Every package is pinned, and has an allowed licence, which the page lists."""
        (packages,) = folder.glob("lib/python3.*/site-packages")
        shown = subprocess.check_output(
            [_BIN / "uv", "pip", "freeze", "--python", folder], text=True, env=self._env
        )
        names = {line.partition("==")[0].partition(" @ ")[0] for line in shown.splitlines()}
        missing = names - {*constraints.names(), "quafka"}
        if missing:
            raise ReleaseError(f"deploy/release/constraints.txt does not pin {sorted(missing)}")
        found = licences.installed([str(packages)])
        for name, package in found.items():
            if refused := licences.refused(package):
                raise ReleaseError(f"{name} has a licence that is not allowed: {sorted(refused)}")
        if licences.page(found) != licences.PAGE.read_text():
            raise ReleaseError("docs/licences.md is old: run `python -m tests.release.licences`")

    def try_tools(self) -> str:
        """Run the wheel by uvx and pipx, and as they will find it on PyPI."""
        python = interpreters.find(_RELEASE) or sys.executable
        by_uvx = environments.by_uvx(self.wheel, python, constraints.FILE)
        smoke.use(by_uvx, self._version, self._env)
        with environments.index(self._folder, self.wheel) as url:
            found = environments.from_index(url, python, constraints.FILE)
            smoke.use(found, self._version, self._env)
        by_pipx = environments.by_pipx(self.wheel, python, constraints.FILE, self._env)
        smoke.use(by_pipx, self._version, self._env)
        return "records written and read by uvx, uvx with a package index, and pipx"

    def finish(self) -> str:
        """Put the constraints beside the packages, and write the digests of all files."""
        shutil.copy(constraints.FILE, DIST / f"quafka-{self._version}-constraints.txt")
        files = sorted(each for each in DIST.iterdir())
        text = "".join(f"{digest}  {name}\n" for name, digest in digests(files).items())
        (DIST / "SHA256SUMS").write_text(text)
        return f"{len(files)} files and SHA256SUMS are in dist"


def main() -> int:
    """The exit code."""
    with tempfile.TemporaryDirectory(prefix="quafka-dist-") as folder:
        release = Release(Path(folder))
        steps = [("build", release.build), ("check", release.check)]
        steps += [(f"Python {each}", lambda v=each: release.try_on(v))  # type: ignore[misc]
                  for each in interpreters.VERSIONS]  # fmt: skip
        steps += [("all extras", release.try_complete), ("uvx, pipx", release.try_tools)]
        steps += [("finish", release.finish)]
        for name, step in steps:
            began = time.monotonic()
            try:
                told = step()
            except ReleaseError as e:
                print(f"make dist: {name}: {e}", file=sys.stderr)
                return 1
            print(f"{name:<12} {time.monotonic() - began:5.1f} s  {told}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
