"""What the Gaussian processes are compared with: the dropout CNN, ensembles of it, temperature scaling."""
