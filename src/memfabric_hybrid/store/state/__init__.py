"""What the store knows and does, as a state machine. Pure: no sockets, threads, clocks or random numbers."""
