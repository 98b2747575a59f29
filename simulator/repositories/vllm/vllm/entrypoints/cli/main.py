"""The command vllm."""

import sys

from gaudi_simulated import front


def main():
    """Serve; nothing else of it is simulated."""
    if sys.argv[1:2] != ["serve"]:
        sys.exit("simulated: of this command there is vllm serve")
    front.main(sys.argv[1:])
