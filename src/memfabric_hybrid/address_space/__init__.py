"""Which address means what: layout, segments, and their exchange between the processes of one host."""
