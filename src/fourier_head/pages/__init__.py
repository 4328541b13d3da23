"""How results are shown: one style for every figure and page, and the report that gathers the studies."""
