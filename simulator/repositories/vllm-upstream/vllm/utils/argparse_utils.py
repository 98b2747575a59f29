"""Where vLLM has its parser since 0.11."""

import argparse


class FlexibleArgumentParser(argparse.ArgumentParser):
    """As vLLM's: underscores in the names of options are dashes."""

    def parse_args(self, args=None, namespace=None):
        """Parse."""
        words = [word.replace("_", "-") if word.startswith("--") else word for word in args or []]
        return super().parse_args(words, namespace)
