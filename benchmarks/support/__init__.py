"""What the benchmarks share: shapes, limits, timing and reports."""
