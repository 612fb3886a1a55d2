"""TLS at the listeners, over OpenSSL without its sockets."""
