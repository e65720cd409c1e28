"""The best of many scores, chosen on a GPU: only the chosen ones reach the host."""

from cuda.alignment.select.launch import TopSelector, select_top

__all__ = ["TopSelector", "select_top"]
