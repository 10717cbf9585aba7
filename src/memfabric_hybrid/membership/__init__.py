"""Who is here: ranks, doorplates and the roster of each object."""
