"""`mabe`, and `python -m mabe_nb`: the command line, also while it is still loaded."""
import sys


def main() -> int: # Exit code, see `mabe_nb.cli.main`
    "Run the command of this process."
    try:
        from .cli import main as run
        return run()
    except KeyboardInterrupt:
        print("mabe: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__": sys.exit(main())
