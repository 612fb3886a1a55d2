"""The setting `data`: a folder, or an object store with a folder of this machine beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from quafka_broker.config.settings import BrokerConfig, StoreUrl, data_place


@pytest.mark.parametrize("url", ["s3://bucket/prefix", "gs://b", "az://b/p", "file:///srv/store"])
def test_a_url_is_a_store(url: str) -> None:
    config = BrokerConfig(data=data_place(url), cache=Path("here"))
    assert config.store == StoreUrl(url)
    assert config.folder == Path("here")


def test_a_path_is_a_folder() -> None:
    config = BrokerConfig(data=data_place("./data"))
    assert config.store is None
    assert config.folder == Path("data")


@pytest.mark.parametrize("text", ["", "ftp://host/path", "file://host/path", "a\0b"])
def test_other_places_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        data_place(text)
