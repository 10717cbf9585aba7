"""The store behind its sockets, and who starts it."""
