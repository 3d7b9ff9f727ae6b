"""`python -m tickgp`."""

from tickgp.cli import main

main()
