"""What a master calls before it begins: wait for a broker that was started along with it.

python -m germline.deploy.wait ADDRESS_FILE
"""

import socket
import sys
import time
from pathlib import Path

from germline import address
from germline.address import Address
from germline.errors import InputError

PATIENCE = 600.0  # seconds
PAUSE = 1.0  # seconds between two attempts
ANSWER = 5.0  # seconds for one


def wait(place: Address, patience: float = PATIENCE) -> bool:
    """Whether somebody answers at an address before patience is over."""
    until = time.monotonic() + patience
    told = False
    while True:
        try:
            socket.create_connection((place.host, place.port), ANSWER).close()
        except OSError as error:
            if not told:
                sys.stderr.write(f"{place.redacted}: {error}; waiting for it\n")
            told = True
        else:
            return True
        if time.monotonic() > until:
            return False
        time.sleep(PAUSE)


def main(file: str) -> None:
    """Wait, and end with 2 if the address is wrong, but with 1 if nobody is there yet."""
    try:
        place = address.parse(Path(file).read_text(encoding="utf-8").strip())
    except (InputError, OSError, UnicodeDecodeError) as error:
        sys.stderr.write(f"{file}: {error}\n")
        sys.exit(2)
    if not wait(place):
        sys.exit(f"{place.redacted}: nobody answered in {PATIENCE:.0f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
