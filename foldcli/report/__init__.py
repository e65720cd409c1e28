"""What people look at: one HTML page and three plots per target, and an index of a folder of targets.

All of it is made from the files of a finished target, so that it can be made again at any time.
"""
