"""Topology, CPU lists, hl-smi, reservations."""
