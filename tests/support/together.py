"""`germline`, but with processes that work as beside an accelerator, wherever that is."""

from functools import partial

from germline.__main__ import main
from germline.run import engines

engines.Processes = partial(engines.Processes, together=True)
main()
