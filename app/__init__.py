"""Carillon: a scheduler service. Postgres decides, Redis rings the bell.

Each package's docstring says what lives there and what it may touch; import-linter keeps the direction.
"""
