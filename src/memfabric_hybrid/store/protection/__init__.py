"""What protects a store from strangers: a shared token, TLS, or both."""
