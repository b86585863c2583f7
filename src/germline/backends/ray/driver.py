"""The driver, as Ray calls the program that joins a cluster: it carries words to its nodes.

It keeps an actor on every node that has cores, as nodes come and go. Each is always asked what it
has to say; what the master says is passed on at once.
"""

import contextlib
import os
import re
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from germline.backends.ray import messages
from germline.backends.ray.messages import Connected, Dial, Dismissed, Gone, Held, Said, Told
from germline.child import die_with

MOMENT = 0.2
LOOK = 1.0  # seconds between two looks at which nodes there are
HELD = 20.0  # seconds after which an actor that has not begun is waiting for others' cores
LATER = 30.0  # seconds after which a node that was held is tried again
BLOBS = 4  # that are kept in the cluster's memory
STORE = 512 * 2**20  # bytes of that memory, in a cluster made here
# What Ray is told before it is imported: not to report who uses it, nor to change its ways.
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
# For a cluster made here: it listens to this machine only, and to those who know its token.
PRIVATE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token"}


class MasterGone(Exception):  # noqa: N818 - what happened
    """There is nobody to do this for."""


@dataclass
class _Node:
    """A node by the id of it, its actor, and what it is being asked."""

    node: str
    actor: Any
    slots: int
    asked: Any = None
    since: float = field(default_factory=time.monotonic)
    begun: bool = False  # whether the actor has said anything
    held: bool = False


class Driver:
    """`master` is the socket to whom all of this is for."""

    def __init__(self, master: Connection, dial: Dial) -> None:
        self._master = master
        self._dial = dial
        self._ray: Any = None
        self._nodes: dict[str, _Node] = {}
        self._dismissed: set[str] = set()
        self._later: dict[str, float] = {}
        self._wanted: tuple[int, Any] = (0, None)  # cores that are missing, and the wish for them
        self._blobs: OrderedDict[str, Any] = OrderedDict()
        self._looked = 0.0

    def run(self) -> None:
        """Carry words until the master hangs up."""
        self._connect()
        self._say(Connected())
        from germline.backends.ray.actor import NodeHost

        self._kind = self._ray.remote(
            max_restarts=-1, max_task_retries=-1, concurrency_groups={"hear": 1, "tell": 1}
        )(NodeHost)
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            if time.monotonic() > self._looked + LOOK:
                self._look()
                self._looked = time.monotonic()
            self._hear()

    def _say(self, message: messages.FromDriver) -> None:
        try:
            self._master.send_bytes(messages.encode(message))
        except OSError:
            raise MasterGone from None

    def _connect(self) -> None:
        """Join the cluster, or make one that nobody else can reach."""
        there = self._dial.address
        private = {} if there else {**PRIVATE, "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        os.environ.update({**QUIET, **private})
        import ray  # which looks at all of this

        self._ray = ray
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if there:
            ray.init(there, **quiet)
        else:
            ray.init(
                "local",
                num_cpus=self._dial.workers or None,
                include_dashboard=False,
                object_store_memory=STORE,
                _temp_dir=self._dial.folder,
                **quiet,
            )

    def _look(self) -> None:
        """Give every node with cores an actor, up to as many cores as are wanted."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._look_for_held()
        here = {node.node for node in list(self._nodes.values())}
        for found in self._ray.nodes():
            name, slots = _name(found), int(found["Resources"].get("CPU", 0))
            if self._dial.workers:
                slots = min(slots, self._missing())
            if not found["Alive"] or found["NodeID"] in here or name in self._dismissed:
                continue
            if slots < 1 or time.monotonic() < self._later.get(name, 0.0):
                continue
            accelerators = found["Resources"].get("GPU", 0)
            actor = self._kind.options(
                num_cpus=slots,
                num_gpus=accelerators,
                scheduling_strategy=NodeAffinitySchedulingStrategy(found["NodeID"], soft=False),
            ).remote(name, slots, self._dial.trust, self._dial.path)
            node = _Node(found["NodeID"], actor, slots)
            self._ask(node)
            self._nodes[name] = node
        if self._dial.workers:
            self._wish(self._missing())

    def _missing(self) -> int:
        """How many of the cores that are wanted have no actor."""
        return self._dial.workers - sum(node.slots for node in list(self._nodes.values()))

    def _look_for_held(self) -> None:
        """Tell of nodes whose cores others use; where not all are needed, try another first."""
        for name, node in list(self._nodes.items()):
            if node.begun or time.monotonic() < node.since + HELD:
                continue
            if not node.held:
                node.held = True
                self._say(Held(name))
            if self._dial.workers:
                self._later[name] = time.monotonic() + LATER
                self._drop(name)

    def _wish(self, missing: int) -> None:
        """Let an autoscaler see how many cores there should be more.

        By a placement group, which is what autoscalers look at and which ends with this program.
        It is given up once there are so many, so that actors can have them.
        """
        from ray.util.placement_group import placement_group, remove_placement_group

        before, group = self._wanted
        if group is not None and (missing != before or group.wait(0)):
            remove_placement_group(group)
            group = None
        if missing > 0 and group is None and not self._free(missing):
            group = placement_group([{"CPU": 1}] * missing)
        self._wanted = (missing, group)

    def _free(self, cores: int) -> bool:
        return bool(self._ray.available_resources().get("CPU", 0) >= cores)

    def _ask(self, node: _Node) -> None:
        node.asked = node.actor.hear.remote()

    def _hear(self) -> None:
        """Pass on what actors have said, waiting a moment for it."""
        asked = {node.asked: name for name, node in list(self._nodes.items())}
        if not asked:
            time.sleep(MOMENT)
            return
        ready, _ = self._ray.wait(list(asked), num_returns=1, timeout=MOMENT)
        if ready:
            ready, _ = self._ray.wait(list(asked), num_returns=len(asked), timeout=0)
        for answer in ready:
            name = asked[answer]
            node = self._nodes.get(name)
            if node is None:
                continue
            try:
                said, refused = self._ray.get(answer)
            except self._ray.exceptions.RayError:
                self._drop(name)
                self._say(Gone(name, len(self._nodes)))
                continue
            node.begun = True
            if said:
                self._say(Said(name, tuple(said)))
            if refused:
                self._dismissed.add(name)
                self._drop(name)
                self._say(Gone(name, len(self._nodes), refused))
            else:
                self._ask(node)

    def _drop(self, name: str) -> None:
        node = self._nodes.pop(name, None)
        if node is not None:
            with contextlib.suppress(Exception):
                self._ray.kill(node.actor)

    def _listen(self) -> None:
        """Pass on what the master says, until it hangs up."""
        try:
            self._pass_on()
        except MasterGone:
            self._end()
        finally:
            os._exit(1)  # a driver that does not listen is worse than none

    def _pass_on(self) -> None:
        while True:
            try:
                message = messages.to_driver.decode(self._master.recv_bytes())
            except (EOFError, OSError):
                raise MasterGone from None
            if isinstance(message, Told):
                node = self._nodes.get(message.host)
                if node is not None:
                    told = self._shared(message) if message.digest else message.message
                    node.actor.tell.remote(message.instance, told)
            elif isinstance(message, Dismissed):
                self._dismissed.add(message.host)
                self._drop(message.host)

    def _shared(self, message: Told) -> Any:  # noqa: ANN401 - a reference
        """A message in the cluster's memory, which nodes hand on to each other."""
        if message.digest not in self._blobs:
            self._blobs[message.digest] = self._ray.put(message.message)
            while len(self._blobs) > BLOBS:
                self._blobs.popitem(last=False)
        return self._blobs[message.digest]

    def _end(self) -> None:
        """Leave the cluster: its actors end, and a cluster made here with them."""
        with contextlib.suppress(Exception):
            self._ray.shutdown()
        os._exit(0)


def _name(node: dict[str, Any]) -> str:
    """What a node is called: after its machine, and the beginning of its id."""
    machine = re.sub(r"[^A-Za-z0-9._-]", "-", node["NodeManagerHostname"])[:60]
    return f"ray-{machine}-{node['NodeID'][:8]}"


def main(descriptor: int, parent: int) -> None:
    """The program: it is told whom to dial, and ends with its master."""
    die_with(parent)
    with Connection(descriptor) as master:
        dial = messages.to_driver.decode(master.recv_bytes())
        assert isinstance(dial, Dial)
        try:
            Driver(master, dial).run()
        except MasterGone:
            return
        except Exception as error:  # Ray has no common kind for what is wrong with a cluster
            master.send_bytes(messages.encode(Connected(f"{type(error).__name__}: {error}")))
