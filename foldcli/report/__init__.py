"""Reports: one HTML page and four plots per target, and an index of a folder of targets.

They are made only from the files of a finished target, so they can be remade at any time; see docs/report.md.
"""
