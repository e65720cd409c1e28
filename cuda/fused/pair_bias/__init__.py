"""The pair bias of attention: a projection of the normalised pair representation to heads.

It is line 3 of Algorithms 7, 13 and 14 of the supplement of Jumper et al., Nature 596, 583 (2021).
"""
