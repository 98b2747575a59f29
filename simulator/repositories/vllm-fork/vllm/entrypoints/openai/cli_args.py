"""Where the fork makes the parser of its server; the stand-in knows a few options of it."""


def make_arg_parser(parser):
    """Add the options to a parser."""
    for option in ("--host", "--model", "--served-model-name", "--dtype"):
        parser.add_argument(option)
    for option in ("--port", "--tensor-parallel-size", "--max-model-len", "--max-num-seqs", "--block-size"):
        parser.add_argument(option, type=int)
    parser.add_argument("--enforce-eager", action="store_true")
    return parser
