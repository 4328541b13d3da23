"""Train small networks with a head on the rows of a table.

`network.py` has one network and its loop; `columns.py` makes inputs of the columns of a table; `members.py` and
`ensemble.py` train several networks at once, each leaving out other rows.
"""

from fourier_head.tabular.network import LEARNING_RATE, WIDTHS, Course, Network, Schedule, fit

__all__ = ["LEARNING_RATE", "WIDTHS", "Course", "Network", "Schedule", "fit"]
