"""Labelled images: what they are, and where they come from."""
