"""The front of the stand-in serving image: a Gaudi release's command line over the real vLLM for CPUs."""
