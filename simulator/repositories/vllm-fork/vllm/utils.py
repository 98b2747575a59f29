"""Where the fork has its parser."""

import argparse


class FlexibleArgumentParser(argparse.ArgumentParser):
    """As the fork's: underscores in the names of options are dashes."""

    def parse_args(self, args=None, namespace=None):
        """Parse."""
        words = [word.replace("_", "-") if word.startswith("--") else word for word in args or []]
        return super().parse_args(words, namespace)
