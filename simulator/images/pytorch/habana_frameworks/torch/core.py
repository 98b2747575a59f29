"""Simulated: the stand-in for PyTorch beside this package knows the device "hpu" itself."""
