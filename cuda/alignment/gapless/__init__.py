"""The gapless filter: the best score of an ungapped local alignment, for every target, exactly.

`reference` is the definition, `layout` says where everything lies, `generator` writes the kernel, `wide` is
the one without limits, `launch` runs them, `launch_table` reads what was measured per GPU (tuning/*.json).
"""

from cuda.alignment.gapless.launch import GaplessFilter

__all__ = ["GaplessFilter"]
