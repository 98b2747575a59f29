"""A simulated Hugging Face hub: the HTTP interface as the real client uses it, and everything that goes wrong."""
