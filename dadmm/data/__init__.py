"""Samples: random data sets, data files, and the division of rows among nodes.

It also groups samples with missing entries by which entries are observed. It may import
`core` and, inside functions, scipy.
"""
