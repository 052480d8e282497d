"""The pacer keeps requests inside the provider's rate limits."""
