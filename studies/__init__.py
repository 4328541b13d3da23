"""The experiments of the paper, one module or folder each; all write `results/<study>/` the same way."""
