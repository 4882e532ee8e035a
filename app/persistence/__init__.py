"""Remembers: tables, queries, the claim and the settle, and the only commit.

Everything that is SQL lives here. It calls ``app.domain`` to decide, inside the transaction that writes the decision,
and knows nothing of Redis, HTTP or arq.
"""
