"""The store that a reader's path and options name."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_quafka.errors import QuafkaOptionError
from quafka_objects import address
from quafka_objects.errors import StoreAddressError
from quafka_objects.store import ObjectStore


def open_store(path: str, options: Mapping[str, str] | None = None) -> ObjectStore:
    """The store at a path or URL, relative to which snapshots have their files.

    An object store takes its credentials from the environment, the machine's role, or `options`:
    the reader's options that begin with `s3.`.

    Raises:
        QuafkaOptionError: the path names no store that can be read here.
    """
    try:
        return address.open_store(path, options)
    except StoreAddressError as e:
        raise QuafkaOptionError(f"cannot read {path}: {e}") from e
