"""The durable private store of everything bought."""
