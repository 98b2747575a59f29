"""What stands in for Gaudi hardware, its driver and its tools on a simulated node."""
