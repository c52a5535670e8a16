"""`python -m kvc` is the command `kvc`."""

from kvc.cli import main

main()
