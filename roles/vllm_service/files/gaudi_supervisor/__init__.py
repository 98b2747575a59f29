"""The supervisor of one vLLM instance: what vllm_supervisor.py runs."""

# Before any other module of the package is read.
from . import loaded as loaded
