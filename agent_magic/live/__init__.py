"""The engine on an event loop."""
