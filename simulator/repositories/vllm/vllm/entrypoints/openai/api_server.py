"""The server: python3 -m vllm.entrypoints.openai.api_server ..."""

import sys

from gaudi_simulated import front

if __name__ == "__main__":
    front.main(["api_server", *sys.argv[1:]])
