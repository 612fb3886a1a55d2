"""Settings: which source wins, and the errors for wrong ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from quafka.settings import known_to_any
from quafka.sources import Effective, SettingError, load
from quafka_broker.config.settings import BrokerConfig
from quafka_gateway.config import GatewayConfig
from quafka_mesh_ops.settings import join_address, split_address

NODE = "ab" * 32


def broker(
    flags: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
    file: Path | None = None,
) -> Effective[BrokerConfig]:
    all_flags: dict[str, str | None] = {**(flags or {}), "config": str(file) if file else None}
    return load(BrokerConfig, all_flags, environment or {}, known_to_any())


def test_defaults_stand_where_nothing_is_said() -> None:
    found = broker()
    assert found.config.wal_fsync == "commit"
    assert found.config.data == Path("./quafka-data")
    assert set(found.sources.values()) == {"default"}


def test_flag_beats_environment_beats_file(tmp_path: Path) -> None:
    file = tmp_path / "quafka.toml"
    file.write_text('num.partitions = 2\nwal.fsync = "never"\nmessage.max.bytes = 5000\n')
    environment = {"QUAFKA_WAL_FSYNC": "interval:50", "QUAFKA_NUM_PARTITIONS": "3"}
    found = broker({"num_partitions": "4"}, environment, file)
    config = found.config
    assert (config.num_partitions, config.wal_fsync, config.message_max_bytes) == (
        4, "interval:50", 5000,
    )  # fmt: skip
    assert found.sources["num_partitions"] == "flag --num-partitions"
    assert found.sources["wal_fsync"] == "env QUAFKA_WAL_FSYNC"
    assert found.sources["message_max_bytes"] == f"file {file}"


def test_every_source_takes_units(tmp_path: Path) -> None:
    file = tmp_path / "quafka.toml"
    file.write_text(
        'wal.segment.bytes = "1.5GiB"\nstore.timeout.ms = "30s"\nlog.retention.ms = -1\n'
    )
    environment = {"QUAFKA_WAL_CHECKPOINT_BYTES": "64MB", "QUAFKA_LOG_RETENTION_HOURS": "7d"}
    config = broker({"wal_reserve_bytes": "1048576", "wal_fsync": "interval:1s"}, environment, file)
    found = config.config
    assert found.wal_segment_bytes == 3 << 29
    assert found.store_timeout_ms == 30_000
    assert found.log_retention_ms == -1
    assert found.wal_checkpoint_bytes == 64_000_000
    assert found.log_retention_hours == 168
    assert found.wal_reserve_bytes == 1 << 20
    assert found.wal_fsync == "interval:1000"


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        (
            "wal_segment_bytes", "5d",
            ("wal.segment.bytes = '5d' (flag --wal-segment-bytes): d is not a unit of bytes (KiB, "
             "MiB, GiB, TiB, PiB, B, kB, KB, MB, GB, TB, PB); must be 64KiB to 16GiB"),
        ),
        (
            "log_retention_hours", "90min",
            ("log.retention.hours = '90min' (flag --log-retention-hours): 90min is not a whole "
             "number of hours; must be -1 (for ever) or more, in whole hours"),
        ),
        (
            "store_timeout_ms", "11min",
            "store.timeout.ms = '11min' (flag --store-timeout-ms): must be 100ms to 10min",
        ),
        (
            "num_partitions", "3GiB",
            "num.partitions = '3GiB' (flag --num-partitions): must be 1 to 100000",
        ),
    ],
)  # fmt: skip
def test_a_wrong_unit_is_an_error_with_its_reason(name: str, value: str, error: str) -> None:
    with pytest.raises(SettingError, match=f"^{re.escape(error)}$"):
        broker({name: value})


def test_tables_and_dotted_keys_are_the_same_in_toml(tmp_path: Path) -> None:
    file = tmp_path / "quafka.toml"
    file.write_text(
        f'[wal]\nfsync = "never"\nsegment.bytes = 1_000_000\n[mesh]\nallow = ["{NODE}"]'
    )
    config = broker(file=file).config
    assert (config.wal_fsync, config.wal_segment_bytes, config.mesh_allow) == (
        "never", 1_000_000, (NODE,),
    )  # fmt: skip


def test_what_a_node_may_do_survives_every_source(tmp_path: Path) -> None:
    other = "b" * 64
    entries = (f"{NODE} orgs=1,7-9 may=serve,snapshot", other, f"{NODE} orgs=5 may=administer")
    file = tmp_path / "quafka.toml"
    file.write_text(f"mesh.allow = {list(entries)}")
    assert broker(file=file).config.mesh_allow == entries
    shown = ",".join(entries)
    assert broker({"mesh_allow": shown}).config.mesh_allow == entries
    assert broker({"mesh_allow": f"{NODE.upper()} orgs=9,1-8 , {other}"}).config.mesh_allow == (
        f"{NODE} orgs=1-9 may=serve,administer", other,
    )  # fmt: skip


def test_the_file_may_be_named_in_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "quafka.toml"
    file.write_text("auto.create.topics.enable = false")
    assert not broker(environment={"QUAFKA_CONFIG": str(file)}).config.auto_create_topics_enable


def test_one_file_serves_both_programs(tmp_path: Path) -> None:
    file = tmp_path / "quafka.toml"
    file.write_text('listen = "0.0.0.0:9092"\nwal.fsync = "never"\nmesh.peers = ["broker:9192"]')
    assert broker(file=file).config.wal_fsync == "never"
    gateway = load(GatewayConfig, {"config": str(file)}, {}, known_to_any()).config
    assert (gateway.listen, gateway.mesh_peers) == ("0.0.0.0:9092", ("broker:9192",))


@pytest.mark.parametrize(
    ("field", "text", "allowed"),
    [
        ("wal_fsync", "sometimes", "commit"),
        ("wal_fsync", "interval:0", "1 to 60000"),
        ("num_partitions", "0", "1 to 100000"),
        ("num_partitions", "many", "1 to 100000"),
        ("auto_create_topics_enable", "yes", "true, false"),
        ("mesh_listen", "9192", "host:port"),
        ("mesh_listen", "localhost:99999", "host:port"),
        ("mesh_allow", "me", "64 hex digits"),
        ("mesh_allow", f"{NODE},me", "64 hex digits"),
        ("mesh_allow", f"{NODE} orgs=1,me", "orgs=1,7-9"),
        ("mesh_allow", f"{NODE} can=serve", "may=serve"),
        ("mesh_datagram_size", "9", "1200 to 60000"),
        ("log_level", "loud", "debug, info, warning, error"),
        ("data", "", "a path"),
        ("data", "a\0b", "a path"),
    ],
)
def test_a_wrong_value_names_the_setting_the_value_and_what_is_allowed(
    field: str, text: str, allowed: str
) -> None:
    with pytest.raises(SettingError) as caught:
        broker({field: text})
    message = str(caught.value)
    assert field.replace("_", ".") in message
    assert repr(text) in message
    assert allowed in message


def test_an_unknown_variable_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SettingError, match=r"QUAFKA_WAL_FSINC .* QUAFKA_WAL_FSYNC"):
        broker(environment={"QUAFKA_WAL_FSINC": "never"})


def test_an_unknown_key_is_refused_with_the_file_and_the_nearest_name(tmp_path: Path) -> None:
    file = tmp_path / "quafka.toml"
    file.write_text('wal.fsink = "never"')
    with pytest.raises(SettingError, match=r"quafka\.toml: wal\.fsink .* wal\.fsync"):
        broker(file=file)


@pytest.mark.parametrize("content", ["wal.fsync = ", "\xff"])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, content: str) -> None:
    file = tmp_path / "quafka.toml"
    file.write_text(content, "latin-1")
    with pytest.raises(SettingError, match=r"quafka\.toml is not TOML"):
        broker(file=file)


@pytest.mark.parametrize(
    ("text", "parts"),
    [("localhost:0", ("localhost", 0)), ("[::1]:9092", ("::1", 9092)), ("[::]:1", ("::", 1))],
)
def test_addresses_are_split_and_joined(text: str, parts: tuple[str, int]) -> None:
    assert split_address(text) == parts
    assert join_address(*parts) == text


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"cannot read .*nowhere\.toml"):
        broker(file=tmp_path / "nowhere.toml")


@pytest.mark.parametrize("text", ["::1:9092", "[localhost]:1", "[::1]", ":9092", "a:b", "a:65536"])
def test_what_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        split_address(text)
