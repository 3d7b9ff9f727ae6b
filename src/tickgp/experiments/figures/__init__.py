"""The figures of the paper: arrays in, a matplotlib figure out, one figure a file."""
