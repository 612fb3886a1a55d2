"""The errors of an object store, all of them OSErrors. A folder also raises the file system's."""


class ObjectStoreError(OSError):
    """The store failed, or refused. The message names the object and the reason."""


class StoreAddressError(ObjectStoreError):
    """The path or URL names no store that can be opened here."""


class ObjectNotFoundError(ObjectStoreError, FileNotFoundError):
    """No object has this path."""


class ObjectExistsError(ObjectStoreError, FileExistsError):
    """`create` was refused: an object with other bytes has this path."""


class ObjectChangedError(ObjectStoreError):
    """`replace` was refused: the object is not the one that the caller has read."""


class AccessDeniedError(ObjectStoreError, PermissionError):
    """The credentials are missing, wrong or not sufficient."""


class TransientStoreError(ObjectStoreError):
    """The store throttles, has failed, or has not answered: the same call may succeed later.

    A write may have taken effect all the same.
    """


class UnsafeStoreError(ObjectStoreError):
    """The store does not do what a log needs of it: see `race`."""
