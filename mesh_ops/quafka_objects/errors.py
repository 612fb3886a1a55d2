"""The errors of an object store, all of them OSErrors. A folder also raises the file system's."""


class ObjectStoreError(OSError):
    """The store failed or refused. The message names the object and the reason."""


class StoreAddressError(ObjectStoreError):
    """The path or URL names no store that can be opened here."""


class ObjectNotFoundError(ObjectStoreError, FileNotFoundError):
    """No object has this path."""


class ObjectExistsError(ObjectStoreError, FileExistsError):
    """`create` was refused: an object with other bytes has this path."""


class ObjectChangedError(ObjectStoreError):
    """`replace` was refused: the object has changed since the caller read it."""


class AccessDeniedError(ObjectStoreError, PermissionError):
    """The credentials are missing, wrong or insufficient."""


class TransientStoreError(ObjectStoreError):
    """The store throttled, failed, or did not answer: the same call may succeed later.

    A write may have taken effect nevertheless.
    """


class UnsafeStoreError(ObjectStoreError):
    """The store lacks a guarantee that a log needs: see `race`."""
