"""benchmarks/emulation."""
