"""Simulated: a Gaudi release's command line over the real vLLM for CPUs."""
