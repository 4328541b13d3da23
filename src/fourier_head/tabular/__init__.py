"""Train small networks with a head on the rows of a table.

`columns.py` makes inputs of the columns of a table; `members.py` and `ensemble.py` train several networks at once, each
leaving out other rows.
"""
