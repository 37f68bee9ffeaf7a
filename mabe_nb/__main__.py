"""`python -m mabe_nb` is the command line `mabe`."""
import sys

from .cli import main

if __name__ == "__main__": sys.exit(main())
