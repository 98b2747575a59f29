"""The brain: typed, pure functions that parse, decide, plan and render. No I/O, no clock, no environment."""
