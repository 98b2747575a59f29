"""Simulated: measures nothing."""

print("Simulated: there is no card and no bandwidth here.")
