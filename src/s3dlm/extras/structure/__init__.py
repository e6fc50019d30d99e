"""Answers that follow a grammar: a JSON schema, a regular expression, choices or a Lark grammar."""
