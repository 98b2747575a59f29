"""Where the fork makes the parser of its server."""


def make_arg_parser(parser):
    """The parser knows the release's options already."""
    return parser
