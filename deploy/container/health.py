"""The image's health check: exits with 1 and prints the problems if the program is not ready."""

import os
import sys
import urllib.error
import urllib.request

port = os.environ["QUAFKA_OPS_LISTEN"].rpartition(":")[2]
try:
    urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2)
except urllib.error.HTTPError as e:
    print(e.read().decode())
    sys.exit(1)
except OSError as e:
    print(e)
    sys.exit(1)
