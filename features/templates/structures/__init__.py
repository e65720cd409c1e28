"""Search of structure libraries by structure: which chains look like a model?"""
