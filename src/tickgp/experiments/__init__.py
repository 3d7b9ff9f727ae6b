"""The experiments of the paper: what is run, and how the results become tables and figures."""
