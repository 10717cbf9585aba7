"""Tools of the tests: real processes, leak checks, ports, campaigns. Imported as `support`."""
