"""The table of Kafka APIs, collected from the handlers.

Each module in `handlers` that declares `API = Api(...)` is in the table. The table is the
dispatch, the ApiVersions response, the version check and the order of requests at once: an API that
is not in the table does not exist, and one that is in it cannot be advertised wrongly.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from quafka_gateway import handlers
from quafka_gateway.handlers.kafka_api import AnyApi


def _collect() -> dict[int, AnyApi]:
    """Import every handler; return the APIs in the order of their keys.

    Raises:
        ValueError: two handlers declare the same key.
    """
    found: dict[int, AnyApi] = {}
    for module in pkgutil.iter_modules(handlers.__path__, f"{handlers.__name__}."):
        api: AnyApi | None = getattr(import_module(module.name), "API", None)
        if api is None:
            continue  # a helper of handlers
        if api.key in found:
            raise ValueError(f"{api.name} and {found[api.key].name} have the same key {api.key}")
        found[api.key] = api
    return dict(sorted(found.items()))


APIS = _collect()
