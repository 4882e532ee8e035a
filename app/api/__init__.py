"""Speaks HTTP: controllers that make one service call each, and the mapping of errors to answers."""
