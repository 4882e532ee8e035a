"""Manages: the use cases behind the API, the command line and agents.

Each use case authorises first, works in one transaction, and rings after its commit. Inputs and views are plain values
that every front shares.
"""
