"""How good a model's probabilities are."""
