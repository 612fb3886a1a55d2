"""Opens the destination that a command or a setting names as DEST."""

from __future__ import annotations

from pathlib import Path

from quafka_broker.snapshots.destination import Destination
from quafka_broker.snapshots.folder_destination import FolderDestination
from quafka_objects.address import NEEDS_OBSTORE, parse_address
from quafka_objects.errors import StoreAddressError


def open_destination(dest: str) -> Destination:
    """Open the destination at a path, or at a URL such as s3://bucket/prefix.

    Raises:
        StoreAddressError: the address has an unknown scheme, is not a folder, or needs obstore.
        ObjectStoreError: the URL names no bucket.
    """
    place = parse_address(dest)
    if isinstance(place, Path):
        return FolderDestination(place)
    try:
        from quafka_broker.snapshots.bucket_destination import BucketDestination
    except ImportError as e:
        raise StoreAddressError(NEEDS_OBSTORE) from e
    return BucketDestination(place)
