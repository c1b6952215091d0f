"""launch/base."""
