"""Simulated: no engine is in it."""
