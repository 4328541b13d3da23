"""The report of all studies: what it reads, how it names and shows it."""
