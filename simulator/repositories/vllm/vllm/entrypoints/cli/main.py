"""The command vllm."""

import sys

from gaudi_simulated import bench, front


def main():
    """Serve, or ask a server; nothing else of it is simulated."""
    if sys.argv[1:3] == ["bench", "serve"]:
        bench.main(sys.argv[3:])
    if sys.argv[1:2] != ["serve"]:
        sys.exit("simulated: of this command there are vllm serve and vllm bench serve")
    front.main(sys.argv[1:])
