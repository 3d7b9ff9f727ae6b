"""Who takes part: each has a file with `start(name, row, device, images, labels)`, and a process of its own."""
