"""`germline`, but with processes that work as beside an accelerator, wherever that is."""

from functools import partial

from germline.__main__ import main
from germline.backends import processes

processes.Processes = partial(processes.Processes, together=True)
main()
