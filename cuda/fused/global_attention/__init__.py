"""Global column attention of the extra MSA stack (Algorithm 19).

The algorithm number is that of the supplement of Jumper et al., Nature 596, 583 (2021).
"""
