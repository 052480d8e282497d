"""Typed answers: the schema that is sent, and the value that is read from the model's text."""
