"""Typed answers: the schema that is sent, and the value that is read from the model's text.

`returns` is a declared type and its check, `schema` its form in the API's grammars, `reading` the value of an answer,
`fields` the fields of it that other steps use.
"""
