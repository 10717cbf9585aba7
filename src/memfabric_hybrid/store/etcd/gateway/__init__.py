"""The way to etcd: connections to its JSON gateway, what is said there, and what its answers mean."""
