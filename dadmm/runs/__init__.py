"""Runs on disk: their settings, and the files of a run's folder.

It holds the settings with their flags and TOML keys, writes and merges the files of all
processes, locks a folder, and reads runs back. It may import `core`, `graphs`, `data`,
`problems`, `penalty`, `comm`, `admm` and `solver`.
"""
