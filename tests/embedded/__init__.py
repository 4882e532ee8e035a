"""The embedded servers and ``carillon up``, with real processes."""
