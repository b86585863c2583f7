"""The program `germline`, also `python -m germline`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is still being imported ends it quietly, too."""
    try:
        from germline.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
