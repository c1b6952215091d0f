"""tests/support/programs."""
