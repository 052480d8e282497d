"""What providers over HTTP share: addresses and keys, the transport, headers, and the words of errors."""
