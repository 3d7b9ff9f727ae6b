"""What the Gaussian processes are compared with: the dropout CNN, and temperature scaling."""
