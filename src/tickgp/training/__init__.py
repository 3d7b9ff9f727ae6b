"""From a model and data to a trained model."""
