"""benchmarks/shared."""
