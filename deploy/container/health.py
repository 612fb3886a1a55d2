"""The image's health check: exits with 1 and prints the problems if the program is not ready."""

import os
import ssl
import sys
import urllib.error
import urllib.request

port = os.environ["QUAFKA_OPS_LISTEN"].rpartition(":")[2]
encrypted = bool(os.environ.get("QUAFKA_OPS_SSL_CERTFILE"))
scheme = "https" if encrypted else "http"
# It is this container's own program, whose certificate is for another name.
context = ssl._create_unverified_context() if encrypted else None  # noqa: S323, SLF001
try:
    urllib.request.urlopen(  # noqa: S310
        f"{scheme}://127.0.0.1:{port}/readyz", timeout=2, context=context
    )
except urllib.error.HTTPError as e:
    print(e.read().decode())
    sys.exit(1)
except OSError as e:
    print(e)
    sys.exit(1)
