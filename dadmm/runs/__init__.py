"""Runs on disk: their settings, flags and TOML keys, and the files of their folders.

It may import `core`, `graphs`, `data`, `problems`, `penalty`, `comm`, `admm`, `solver`.
"""
