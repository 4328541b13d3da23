"""What all studies share: command line, results, forecast scores, the report."""
