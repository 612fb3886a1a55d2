"""Opens the store at a path or URL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from quafka_objects.errors import StoreAddressError

if TYPE_CHECKING:
    from quafka_objects.store import ObjectStore

BUCKET_SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss")
NEEDS_OBSTORE = "an object store needs obstore: pip install 'quafka[s3]'"


def open_store(
    address: str,
    options: Mapping[str, str] | None = None,
    attempt_seconds: float | None = None,
) -> ObjectStore:
    """The store at a path or URL.

    Args:
        options: settings of an object store that take precedence over the environment.
        attempt_seconds: see `BucketStore`.

    Raises:
        StoreAddressError: the address has an unknown scheme, is not a folder, or needs obstore.
        ObjectStoreError: the URL names no bucket, or an option is unknown.
    """
    place = parse_address(address)
    if isinstance(place, Path):
        from quafka_objects.folder import FolderStore

        return FolderStore(place)
    try:
        from quafka_objects.bucket import BucketStore
    except ImportError as e:
        raise StoreAddressError(NEEDS_OBSTORE) from e
    return BucketStore(place, options, attempt_seconds)


def parse_address(address: str) -> Path | str:
    """The path of a local folder, or the URL of a bucket in obstore's form.

    Raises:
        StoreAddressError: the address has an unknown scheme, or its path is not a folder.
    """
    if not address:
        raise StoreAddressError("the path is empty")
    if address.startswith("file:"):
        return _folder(_local_path(address))
    if "://" not in address:
        return _folder(Path(address))
    scheme, _, rest = address.partition("://")
    if scheme not in BUCKET_SCHEMES:
        allowed = ", ".join(f"{scheme}://" for scheme in BUCKET_SCHEMES)
        raise StoreAddressError(f"a store is a folder, file:///folder or one of {allowed}")
    return f"s3://{rest}" if scheme == "s3a" else address


def _local_path(url: str) -> Path:
    """The path in a file URL, percent-decoded; only files of this machine can be opened."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise StoreAddressError("a URL of a folder has three slashes, as in file:///folder")
    return Path(unquote(parts.path))


def _folder(path: Path) -> Path:
    if path.exists() and not path.is_dir():
        raise StoreAddressError("it is not a folder")
    return path
