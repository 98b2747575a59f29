"""A stand-in for Gaudi nodes and the vendor's servers: simulated, and it says so."""
