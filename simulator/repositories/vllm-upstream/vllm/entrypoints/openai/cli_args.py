"""Where vLLM makes the parser of its server; the stand-in knows the options that the scenario's plan has."""

TEXTS = ("host", "model", "dtype", "distributed-executor-backend", "tool-call-parser")
NUMBERS = ("port", "tensor-parallel-size", "max-model-len", "max-num-seqs", "block-size", "seed")
MORE_NUMBERS = ("max-num-batched-tokens", "shutdown-timeout")
SWITCHES = ("enforce-eager", "disable-log-requests", "enable-auto-tool-choice")


def make_arg_parser(parser):
    """Add the options to a parser."""
    for name in TEXTS:
        parser.add_argument(f"--{name}")
    for name in (*NUMBERS, *MORE_NUMBERS):
        parser.add_argument(f"--{name}", type=int)
    for name in SWITCHES:
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--gpu-memory-utilization", type=float)
    parser.add_argument("--served-model-name", nargs="+")
    return parser
