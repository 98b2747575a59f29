"""Simulated: it has no platform."""


def register():
    """Name the platform, as vLLM asks."""
    return "vllm_gaudi.platform.HpuPlatform"
