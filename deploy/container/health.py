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
context = ssl.create_default_context() if encrypted else None
if context is not None:
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
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
