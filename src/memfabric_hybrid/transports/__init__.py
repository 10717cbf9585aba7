"""How bytes move: which route leads to a rank, and why none does."""
