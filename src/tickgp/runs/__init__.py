"""A run: training with its folder, and what is done with it afterwards."""
