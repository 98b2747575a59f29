"""The supervisor of one vLLM instance: what vllm_supervisor.py runs."""
