"""The engine on virtual time."""
