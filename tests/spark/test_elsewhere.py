"""Executors that have nothing but the wheel; snapshots in an object store.

`local-cluster` runs a master, a worker and executors in processes of their own, and sends them what
the job has. Their Python sees no installed Quafka: the editable install's paths are taken away.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_quafka.offsets import ranges_to_read
from pyspark_quafka.options import read_options
from pyspark_quafka.parquet import export_parquet
from pyspark_quafka.planner import plan
from pyspark_quafka.scan import run
from pyspark_quafka.snapshot import open_snapshot
from pyspark_quafka.store import open_store
from quafka_objects.store import ObjectStore
from quafka_proto.record_codec import Record
from tests.support.java import QUICK_START
from tests.support.s3 import S3, s3_server
from tests.support.snapshots import SnapshotMaker, records_of

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "proto/quafka_proto",
    "mesh_ops/quafka_loop",
    "mesh_ops/quafka_objects",
    "spark/pyspark_quafka",
)
"""What a job needs of the wheel."""

_JOB = """
import sys
from pyspark.sql import SparkSession

dest, wheel = sys.argv[1:3]
spark = (
    SparkSession.builder.master("local-cluster[1,1,512]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "512m")
    .config("spark.executor.memory", "512m")
    .config("spark.log.level", "ERROR")
    .getOrCreate()
)
spark.sparkContext.addPyFile(wheel)

def where(_):
    import importlib.util
    import os
    names = "pyspark_quafka", "aioquic", "quafka_broker"
    specs = [importlib.util.find_spec(name) for name in names]
    return [os.getpid(), *[spec and spec.origin for spec in specs]]

pid, origin, *servers = spark.sparkContext.parallelize([0], 1).map(where).first()
rows = spark.read.format("quafka").option("subscribe", "orders").load(dest).count()
import json, os
print(json.dumps({"rows": rows, "origin": origin, "servers": servers, "same": pid == os.getpid()}))
spark.stop()
"""


def make_wheel(folder: Path) -> Path:
    """The packages in a zip, as the wheel has them."""
    wheel = folder / "quafka-0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for package in PACKAGES:
            for path in sorted((ROOT / package).rglob("*.py")):
                archive.write(path, path.relative_to((ROOT / package).parent))
    return wheel


def bare_python(folder: Path) -> Path:
    """A folder of what executors have installed: not Quafka, nor what its servers need."""
    site = folder / "site"
    site.mkdir()
    for name in ("cramjam", "google_crc32c", "numpy", "py4j", "pyarrow", "pyspark"):
        package = Path(str(import_module(name).__file__)).parent
        (site / name).symlink_to(package)
        for beside in package.parent.glob(f"{name}*.libs"):
            (site / beside.name).symlink_to(beside)
    return site


@pytest.mark.needs("java")
def test_executors_need_the_wheel_only(tmp_path: Path) -> None:
    maker = SnapshotMaker(tmp_path / "dest")
    for _ in range(20):
        maker.append("orders", records_of([b"x"] * 50), codec=4)
    maker.publish()
    python = tmp_path / "python"
    # -S: no site-packages, and none of the editable install.
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    wheel = make_wheel(tmp_path)
    site = bare_python(tmp_path)
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": str(python),
        "PYTHONPATH": os.pathsep.join([str(site), str(wheel)]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(site / "pyspark"),
        "SPARK_SCALA_VERSION": "2.13",
        "JAVA_TOOL_OPTIONS": " ".join(QUICK_START),
    }
    job = tmp_path / "job.py"
    job.write_text(_JOB)
    done = subprocess.run(
        [str(python), str(job), "./dest", str(wheel)],  # executors are in folders of their own
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == 1_000
    assert ".whl" in found["origin"]
    assert found["servers"] == [None, None]
    assert not found["same"]


# --- object stores --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture
def credentials(s3: S3) -> dict[str, str]:
    """The reader's options for the server."""
    names = {
        "AWS_ENDPOINT_URL": "endpoint", "AWS_REGION": "region",
        "AWS_ACCESS_KEY_ID": "access_key_id", "AWS_SECRET_ACCESS_KEY": "secret_access_key",
    }  # fmt: skip
    return {names[name]: value for name, value in s3.environment.items()}


@pytest.fixture
def lake(s3: S3, credentials: dict[str, str], tmp_path: Path) -> str:
    """The URL of a snapshot of two topics, one of which is a small part of every segment."""
    maker = SnapshotMaker(tmp_path / "dest", rows_in_segment=40)
    for number in range(80):
        maker.append("large", records_of([os.urandom(20_000)]))
        if number % 20 == 0:
            maker.append("orders", [Record(0, number, b"k", b"%d" % number, [])] * 5, codec=3)
    maker.publish()
    store = open_store(s3.url, credentials)
    for path in (tmp_path / "dest").rglob("*"):
        if path.is_file():
            store.put(str(path.relative_to(tmp_path / "dest")), path.read_bytes())
    return s3.url


def test_snapshots_in_an_object_store(
    spark: SparkSession, lake: str, credentials: dict[str, str]
) -> None:
    options = {f"s3.{name}": value for name, value in credentials.items()}
    reader = spark.read.format("quafka").option("subscribe", "orders").options(**options)
    rows = reader.load(lake).orderBy("offset").collect()
    assert [bytes(row.value) for row in rows] == [
        b"%d" % number for number in (0, 20, 40, 60) for _ in range(5)
    ]
    wrong = {**options, "s3.secret_access_key": "guessed"}
    reader = spark.read.format("quafka").option("subscribe", "orders").options(**wrong)
    with pytest.raises(PySparkException, match="s3://"):
        reader.load(lake).count()


def test_the_environment_s_credentials_and_parquet(
    s3: S3, lake: str, credentials: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    done = export_parquet(lake, f"{lake}/parquet", topics=["orders"])
    assert done.records == 20
    store = open_store(lake, credentials)
    assert store.read(f"parquet/{done.files[0]}")[:4] == b"PAR1"
    assert store.exists(f"parquet/{done.folder}/_SUCCESS")


def test_only_what_is_wanted_is_fetched(
    lake: str, credentials: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that is a small part of the log costs a small part of its bytes."""
    fetched: list[int] = []
    store_type = type(open_store(lake, credentials))
    view = store_type.view

    def counted(
        self: ObjectStore, path: str, start: int = 0, length: int | None = None
    ) -> memoryview:
        data = view(self, path, start, length)
        fetched.append(len(data))
        return data

    monkeypatch.setattr(store_type, "view", counted)
    options = read_options(
        {"path": lake, "subscribe": "orders", **{f"s3.{k}": v for k, v in credentials.items()}}
    )
    snapshot = open_snapshot(open_store(lake, credentials))
    scans = plan(snapshot, ranges_to_read(snapshot, options), options)
    assert sum(batch.num_rows for scan in scans for batch in run(scan)) == 20
    assert sum(fetched) < 80 * 20_000 / 10
