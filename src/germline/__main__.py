"""`python -m germline` is the command `germline`."""

from germline.cli import main

main()
