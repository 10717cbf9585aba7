"""Who is here: ranks, rank sockets and the roster of each object."""
