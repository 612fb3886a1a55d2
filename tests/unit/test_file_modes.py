"""What a broker, a snapshot and a `file://` store write is for their user and its group alone.

Every new file and folder is made by `quafka_loop.file_modes`, or is for its user alone.
`tests/integration/test_file_modes.py` lists the files of real processes.
"""

from __future__ import annotations

import ast
import asyncio
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from quafka_broker.snapshots import pins
from quafka_broker.snapshots.create import Creation
from quafka_broker.snapshots.cut_files import PinnedFiles
from quafka_broker.snapshots.folder_destination import FolderDestination
from quafka_broker.snapshots.restore import restore
from quafka_broker.snapshots.zone_cache import ZONES, fill_zone_cache
from quafka_loop import file_modes
from quafka_mesh_ops.identity import replace_file
from quafka_objects.folder import FolderStore
from tests.unit.broker.snapshot_tools import ORG, named, put, rewrite, state_in
from tests.unit.test_seam import FOLDERS, ROOT

ELSEWHERE = {
    "mesh_ops/quafka_loop/file_modes.py": "it makes the files",
    "mesh_ops/quafka_mesh_ops/identity.py": "a key has mode 0600, a replaced file that of before",
    "gateway/quafka_gateway/security/audit.py": "the audit log has mode 0600",
    "deploy/helm/quafka/files/keys.py": "its temporary folder has mode 0700",
    "deploy/quafka/up_console.py": "a token has mode 0600",
    "broker/quafka_broker/places/descriptor_server.py": "the folder of a socket has mode 0700",
}
_MAKERS = {"mkdir", "makedirs", "write_text", "write_bytes", "touch", "copyfile", "copy", "copy2"}
_MAYBE = re.compile(rf"\bopen\(|shutil|\b(?:{'|'.join(sorted(_MAKERS - {'copy'}))})\(")
_COPIERS = {"copyfile", "copy", "copy2"}
"""Of these names only the functions of shutil count."""


def _makes_a_file(call: ast.Call) -> bool:
    function, module = call.func, ""
    if isinstance(function, ast.Attribute):
        name = function.attr
        module = function.value.id if isinstance(function.value, ast.Name) else ""
    else:
        name = function.id if isinstance(function, ast.Name) else ""
    if name in _MAKERS:
        return name not in _COPIERS or module == "shutil"
    if name != "open" or any(each.arg in ("opener", "closefd") for each in call.keywords):
        return False
    if module == "os":
        return len(call.args) > 2 or "O_CREAT" in ast.unparse(call)
    modes = [each for each in call.args[:2] if isinstance(each, ast.Constant)]
    return any(set("wxa") & set(str(mode.value)) for mode in modes)


def _files_made(source: str) -> list[int]:
    if _MAYBE.search(source) is None:
        return []
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [call.lineno for call in calls if _makes_a_file(call)]


def test_no_other_module_makes_files() -> None:
    found = [
        f"{name}:{line}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (name := path.relative_to(ROOT).as_posix()) not in ELSEWHERE
        for line in _files_made(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "p.open('xb')", "open(p, 'w')", "open(p, 'a', encoding='utf-8')", "p.mkdir(0o700)",
        "os.open(p, flags, 0o640)", "os.open(p, os.O_RDWR | os.O_CREAT)", "p.write_text(t)",
        "shutil.copyfile(a, b)", "os.makedirs(p)",
    ],
)  # fmt: skip
def test_the_check_finds_what_makes_files(source: str) -> None:
    assert _files_made(source) == [1]


@pytest.mark.parametrize(
    "source",
    ["p.open('rb')", "open(p, 'r+b')", "os.open(p, os.O_RDONLY)", "d.copy()", "open(p, opener=o)"],
)
def test_the_check_passes_what_makes_none(source: str) -> None:
    assert _files_made(source) == []


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(root: Path) -> dict[str, int]:
    """The modes of all files and folders below a folder, and its own, but those that are right."""
    wrong: dict[str, int] = {}
    for path in (root, *root.rglob("*")):
        mode = path.lstat().st_mode
        right = {stat.S_IFREG: file_modes.FILE_MODE, stat.S_IFDIR: file_modes.FOLDER_MODE}
        if stat.S_IMODE(mode) != right[stat.S_IFMT(mode)]:
            wrong[str(path)] = stat.S_IMODE(mode)
    return wrong


def test_folders_have_the_mode_also_above_the_last(tmp_path: Path) -> None:
    file_modes.make_folders(tmp_path / "a" / "b" / "c")
    file_modes.make_folders(tmp_path / "a" / "b" / "c")
    assert modes(tmp_path / "a") == {}
    with pytest.raises(FileExistsError):
        file_modes.make_folders(tmp_path / "a" / "b", exist_ok=False)
    with pytest.raises(FileExistsError):
        file_modes.make_folder(tmp_path / "a")


def owner_of(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_uid, status.st_gid


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[Path, tuple[int, int]]:
    """What this process gives away as root, and to whom. For others it is as if they were root."""
    found: dict[Path, tuple[int, int]] = {}
    change = os.fchown

    def recorded(fd: int, uid: int, gid: int) -> None:
        change(fd, uid, gid)
        found[Path(f"/proc/self/fd/{fd}").readlink()] = uid, gid

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", recorded)
    return found


def folder_of_somebody(folder: Path) -> Path:
    """A folder that is not root's: of another user, if this process may make it that."""
    folder.mkdir()
    if os.getuid() == 0:
        os.chown(folder, 65534, 65534)
    return folder


def test_what_root_makes_belongs_to_the_owner_of_its_folder(
    tmp_path: Path, given: dict[Path, tuple[int, int]]
) -> None:
    data = folder_of_somebody(tmp_path / "data")
    file_modes.make_folders(data / "a" / "b")
    file_modes.make_folder(data / "a", exist_ok=True)
    file_modes.create_file(data / "a" / "made").close()
    file_modes.rewrite_file(data / "a" / "b" / "written").close()
    file_modes.rewrite_file(data / "a" / "b" / "written").close()
    file_modes.rewrite_text(data / "text").close()
    replace_file(data / "key", b"", 0o600)
    made = [path for path in data.rglob("*") if path.name != "key"]
    assert {owner_of(path) for path in data.rglob("*")} == {owner_of(data)}
    assert given.keys() >= set(made)
    assert len(given) == len(made) + 1, "the key, under its first name"
    assert (data / "key").stat().st_mode == stat.S_IFREG | 0o600
    with pytest.raises(FileExistsError, match="a/made"):
        file_modes.create_file(data / "a" / "made")
    with pytest.raises(FileExistsError):
        file_modes.make_folder(data / "text", exist_ok=True)


def test_root_gives_away_nothing_that_was_there(
    tmp_path: Path, given: dict[Path, tuple[int, int]]
) -> None:
    """Not even by a link that the owner of the folder has put there."""
    data, secret = folder_of_somebody(tmp_path / "data"), tmp_path / "secret"
    secret.touch()
    (tmp_path / "private").mkdir()
    (data / "link").symlink_to(secret)
    (data / "wal").symlink_to(tmp_path / "private")
    os.close(file_modes.open_descriptor(data / "link", os.O_RDWR | os.O_CREAT))
    file_modes.create_file(data / "wal" / "new").close()
    file_modes.make_folder(data / "wal" / "folder")
    assert secret not in given
    assert all(owner_of(path.parent) == owner for path, owner in given.items())
    assert {owner_of(path) for path in tmp_path.rglob("private/*")} == {owner_of(tmp_path)}


def test_objects_of_a_folder_as_a_store(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "deep" / "store")
    store.put("a/b/put", b"1")
    store.replace("c/replaced", b"2", store.create("c/replaced", b"1"))
    store.create("created", b"1")
    assert modes(tmp_path / "deep") == {}
    assert len(list(store.list_objects())) == 3


async def test_a_log_its_zones_and_pins_its_snapshot_and_what_is_restored(tmp_path: Path) -> None:
    data, dest, restored = (tmp_path / name for name in ("data", "dest", "restored"))
    file_modes.make_folders(data / "wal")  # as a broker does
    async with state_in(data) as state:
        topic, _ = await state.topics.create(ORG, "t", 1)
        await put(state, topic, *named("t", range(60)))
        assert await rewrite(state) >= 0
        name = await pins.pin(state, data, local=True)
        with pins.held(data, name) as folder:
            cut = pins.pinned_cut(data, name)
            fill_zone_cache(data, cut.segments)
            assert list((data / ZONES).iterdir())
            store = FolderDestination(dest)
            with store.locked() as lock:
                made = Creation(store, PinnedFiles(folder), cut).run(lock)
            assert modes(data) == {}
        assert modes(dest) == {}
    await asyncio.to_thread(restore, store, made.manifest, restored)
    assert modes(restored) == {}
