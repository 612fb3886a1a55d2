"""What README and docs/cli.md show works when it is pasted."""

from __future__ import annotations

import re
import shlex
import subprocess
from itertools import groupby
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.command import Command
from tests.support.group_members import GROUPS

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]


def commands(page: str, heading: str) -> list[str]:
    """The first shell commands below a heading."""
    text = (ROOT / page).read_text()
    below = text.partition(f"\n## {heading}\n")[2]
    found = re.search(r"```sh\n(.*?)```", below, re.DOTALL)
    assert found is not None
    return [line for line in found[1].splitlines() if not line.startswith("export PATH=")]


def paste(quafka: Command, page: str, heading: str) -> str:
    """Run them, each of which must succeed; what they print."""
    shown = ""
    for line in commands(page, heading):
        out = ""
        words = shlex.split(line, comments=True)
        for pipe, command in groupby(words, key="|".__eq__):
            if pipe:
                continue
            name, *arguments = command
            if name == "quafka":
                out = quafka("", *arguments, stdin=out.encode()).out
            else:
                done = subprocess.run([name, *arguments], capture_output=True, check=True)
                out = done.stdout.decode()
        shown += out
    return shown


def test_nothing_to_show_and_then_what_is_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("photo.jpg").write_bytes(b"\xff\xd8")
    with Cluster(tmp_path, broker_args=GROUPS) as cluster:
        quafka = Command(cluster.bootstrap)
        empty = "no topics (`quafka topics create NAME` creates one)\n"
        assert quafka("topics list").out == empty
        assert quafka("groups list").out == "no groups\n"
        assert quafka("topics list --format json").json == {"topics": []}
        assert quafka("groups list --format json").json == {"groups": []}
        shown = paste(quafka, "README.md", "Use it, in another terminal")
        assert sorted(re.findall(r"^\d \d (k\d) (\w+)$", shown, re.MULTILINE)) == [
            ("k1", "first"), ("k2", "second"), ("k3", "third"),
        ]  # fmt: skip
        assert re.search(r"^behind +caught up$", shown, re.MULTILINE)
        assert "caught up in" not in shown
        assert "\nfail" not in shown
        quafka("topics delete orders")
        paste(quafka, "docs/cli.md", "Topics")
        paste(quafka, "docs/cli.md", "Configs")
        quafka("configs unset orders max.message.bytes retention.bytes")
        quafka("groups reset-offsets shipping -t orders --to start")
        paste(quafka, "docs/cli.md", "Groups")
        quafka("topics create payments")
        shown = paste(quafka, "docs/cli.md", "Records")
        assert "source=shell" in shown
        assert [row[:2] for row in quafka("topics list").rows] == [
            ["copy", "1"], ["orders", "6"], ["payments", "1"],
        ]  # fmt: skip
