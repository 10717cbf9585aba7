"""A participant that reaches the store over sockets."""
