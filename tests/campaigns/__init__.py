"""Campaigns and fuzzers: tools, which ``./launch/test --all`` runs."""
