"""How fast each way of decoding is on this machine, and whether it gives the same text. Imports nothing itself."""
