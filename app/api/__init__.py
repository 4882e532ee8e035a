"""The HTTP API: controllers that make one service call each, and the mapping of errors to responses."""
