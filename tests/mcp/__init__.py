"""Tests of the endpoint of agents."""
