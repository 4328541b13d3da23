"""Train small networks with a head on the rows of a table.

`columns.py` makes inputs of the columns of a table, `boosting.py` adds what trees say of a row, `inputs.py` has both
and the kinds of networks; `members.py` and `ensemble.py` train several networks at once, each leaving out other rows.
"""
