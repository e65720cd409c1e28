"""The gapless filter: the best score of an ungapped local alignment, for every target.

`GaplessBounds` bounds the scores from above, fast; `GaplessFilter` gives them exactly, for all targets or for
listed ones. `reference` is the definition, `layout` says where everything lies, `byte_table` what a bound is
made of, `generator` writes the kernels, `stretches` and `border` cut long targets and long queries, `wide` is
the kernel without limits, `launch` and `bounds` run them, `launch_table` reads what was measured per GPU
(tuning/*.json).
"""

from cuda.alignment.gapless.bounds import UNBOUNDED, GaplessBounds
from cuda.alignment.gapless.launch import GaplessFilter

__all__ = ["UNBOUNDED", "GaplessBounds", "GaplessFilter"]
