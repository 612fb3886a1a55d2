"""`quafka node init | id | allow | revoke`."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from quafka.cli import main
from quafka_loop import threads
from quafka_mesh_ops.allow_list import allow, parse
from quafka_mesh_ops.grants import AllowListEntry

ONE, TWO = "1" * 64, "2" * 64
Output = pytest.CaptureFixture[str]


def test_init_makes_a_key_once_and_id_tells_it(capsys: Output, tmp_path: Path) -> None:
    key = tmp_path / "new" / "node.key"
    assert main(["node", "init", str(key)]) == 0
    node_id = capsys.readouterr().out.strip()
    assert len(bytes.fromhex(node_id)) == 32
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    content = key.read_bytes()
    assert main(["node", "init", str(key)]) == 1
    assert "it was not changed" in capsys.readouterr().err
    assert key.read_bytes() == content
    assert main(["node", "id", str(key)]) == 0
    assert capsys.readouterr().out.strip() == node_id


def test_id_makes_no_key(capsys: Output, tmp_path: Path) -> None:
    assert main(["node", "id", str(tmp_path / "node.key")]) == 1
    assert "No such file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_bad_key_file_is_one_sentence_and_exit_1(capsys: Output, tmp_path: Path) -> None:
    key = tmp_path / "node.key"
    key.write_text("no key")
    key.chmod(0o600)
    assert main(["node", "id", str(key)]) == 1
    assert "is not an unencrypted PEM private key" in capsys.readouterr().err
    key.chmod(0o644)
    assert main(["node", "id", str(key)]) == 1
    assert "other users may read" in capsys.readouterr().err


def test_a_key_among_the_credentials_of_a_systemd_unit(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "node.key"
    assert main(["node", "init", str(key)]) == 0
    node_id = capsys.readouterr().out
    key.chmod(0o440)  # how the mask of an ACL that lets the unit's user read is shown
    assert main(["node", "id", str(key)]) == 1
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "other"))
    assert main(["node", "id", str(key)]) == 1
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert main(["node", "id", str(key)]) == 0
    assert capsys.readouterr().out == node_id
    for mode in (0o460, 0o444):
        key.chmod(mode)
        assert main(["node", "id", str(key)]) == 1


def test_a_changed_list_keeps_its_owner_where_that_is_allowed(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "allowed"
    assert main(["node", "allow", ONE, "--file", str(file)]) == 0
    owners: list[tuple[int, int]] = []

    def chown(path: Path, user: int, group: int) -> None:
        assert path.parent == tmp_path
        assert path != file, "the new file, before it replaces the old one"
        owners.append((user, group))
        raise PermissionError

    monkeypatch.setattr(os, "chown", chown)
    assert main(["node", "allow", TWO, "--file", str(file)]) == 0
    assert owners == [(file.stat().st_uid, file.stat().st_gid)]
    assert capsys.readouterr().out == "allowed\nallowed\n"


def test_allow_and_revoke_change_one_line(capsys: Output, tmp_path: Path) -> None:
    file = tmp_path / "allowed"
    assert main(["node", "allow", ONE, "--file", str(file)]) == 0
    file.write_text(f"# gateways\n{ONE}  # Berlin")
    file.chmod(0o640)
    assert main(["node", "allow", TWO.upper(), "--file", str(file)]) == 0
    assert file.read_text() == f"# gateways\n{ONE}  # Berlin\n{TWO}\n"
    assert main(["node", "allow", TWO, "--file", str(file)]) == 0
    assert main(["node", "revoke", ONE, "--file", str(file)]) == 0
    assert file.read_text() == f"# gateways\n{TWO}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert main(["node", "revoke", ONE, "--file", str(file)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said == ["allowed", "allowed", "already on the list", "revoked", "not on the list"]
    assert [path.name for path in tmp_path.iterdir()] == ["allowed"]


def test_allow_sets_what_a_node_may_do(capsys: Output, tmp_path: Path) -> None:
    file = tmp_path / "allowed"
    file.write_text(f"{ONE}  # Berlin\n{TWO} orgs=2\n{ONE} orgs=5 may=snapshot\n")

    def allow_one(*options: str) -> str:
        assert main(["node", "allow", ONE, "--file", str(file), *options]) == 0
        return file.read_text()

    assert allow_one("--org", "7-9", "--org", "1, 8", "--may", "serve") == (
        f"{ONE} orgs=1,7-9 may=serve  # Berlin\n{TWO} orgs=2\n"
    )
    assert allow_one("--may", "serve", "--org", "1,7-9").startswith(f"{ONE} orgs=1,7-9 may=serve")
    assert allow_one().startswith(f"{ONE} orgs=1,7-9 may=serve")  # not widened by accident
    assert allow_one("--may", "snapshot,serve").startswith(f"{ONE} orgs=* may=serve,snapshot  #")
    assert main(["node", "allow", "3" * 64, "--org", "4", "--file", str(file)]) == 0
    assert file.read_text().endswith(f"{'3' * 64} orgs=4 may=serve,administer\n")
    said = capsys.readouterr().out.splitlines()
    assert said == ["allowed", "already on the list", "already on the list", "allowed", "allowed"]


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--org", "0", "neither an org (1 to 4294967295) nor a range"),
        ("--org", "9-7", "neither an org"),
        ("--org", "", "neither an org"),
        ("--may", "fly", "allowed are serve, administer, snapshot"),
    ],
)
def test_wrong_orgs_and_rights_are_wrong_arguments(
    option: str, value: str, reason: str, capsys: Output, tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["node", "allow", ONE, "--file", str(tmp_path / "allowed"), option, value])
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("allowed")
    assert main(["node", "allow", ONE, "--file", str(tmp_path / "link")]) == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "allowed").read_text() == f"{ONE}\n"


def test_what_cannot_be_changed_is_left_alone(capsys: Output, tmp_path: Path) -> None:
    file = tmp_path / "allowed"
    assert main(["node", "revoke", ONE, "--file", str(file)]) == 1
    assert "No such file" in capsys.readouterr().err
    file.write_text(f"{ONE}\nnobody\n")
    for action in ("allow", "revoke"):
        assert main(["node", action, TWO, "--file", str(file)]) == 1
        assert "line 2: 'nobody' is not a node id" in capsys.readouterr().err
    assert file.read_text() == f"{ONE}\nnobody\n"


def test_what_is_no_node_id_is_a_wrong_argument(capsys: Output, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["node", "allow", "gateway", "--file", str(tmp_path / "allowed")])
    assert ended.value.code == 2
    assert "64 hex digits" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_changes_at_once_are_all_kept(tmp_path: Path) -> None:
    file = tmp_path / "allowed"
    ids = [f"{n:064x}" for n in range(24)]
    with threads.ThreadPoolExecutor(8) as pool:
        entries = [AllowListEntry(node_id) for node_id in ids]
        assert all(pool.map(lambda entry: allow(file, entry), entries))
    assert set(parse(file.read_bytes())) == set(entries)
