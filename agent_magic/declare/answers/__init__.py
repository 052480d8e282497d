"""Typed answers: the schema that is sent, and the value that is read from the model's text.

`returns` is a declared type and its check, `schema` what the API's grammars can hold of it, `reading` the value of an
answer, `fields` what other steps take of it.
"""
