"""All that is Anthropic's: requests, streams, errors, limits."""
