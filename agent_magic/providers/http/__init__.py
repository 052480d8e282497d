"""Shared by providers over HTTP: addresses and keys, the transport, headers, and the words of errors."""
