"""Where the fork has its parser."""

import argparse

from gaudi_simulated import front, surface


class FlexibleArgumentParser(argparse.ArgumentParser):
    """Takes what the release's parser takes, and refuses what it refuses."""

    def parse_args(self, args=None, namespace=None):
        """Parse."""
        try:
            return surface.parse(front.known(), list(args or []))
        except surface.UsageError as error:
            self.error(str(error))
