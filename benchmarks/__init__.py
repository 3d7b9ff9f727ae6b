"""Speed and memory of a training step, side by side with peers: `python -m benchmarks --help`."""
