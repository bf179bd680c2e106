"""All readers of blocks, made anew for each diagnosis."""

from __future__ import annotations

from dataclasses import dataclass, field

from ncdiag.logs.addresses import Addresses
from ncdiag.logs.alive import Life
from ncdiag.logs.bench import Bench
from ncdiag.logs.elastic import Elastic
from ncdiag.logs.lasting import Lasting
from ncdiag.logs.members import Members
from ncdiag.logs.model import Line
from ncdiag.logs.native import Native
from ncdiag.logs.own_store import OwnStore
from ncdiag.logs.pace import Pace
from ncdiag.logs.pasted.device_nodes import DeviceNodes
from ncdiag.logs.pasted.digests import Digests
from ncdiag.logs.pasted.driver_kind import DriverKind
from ncdiag.logs.pasted.gids import Gids
from ncdiag.logs.pasted.heads import Heads
from ncdiag.logs.pasted.lanes import Lanes
from ncdiag.logs.pasted.limits import Limits
from ncdiag.logs.pasted.mapped import Mapped
from ncdiag.logs.pasted.memory_summary import MemorySummary
from ncdiag.logs.pasted.models import Models
from ncdiag.logs.pasted.optics import Optics
from ncdiag.logs.pasted.paused import Paused
from ncdiag.logs.pasted.pings import Pings
from ncdiag.logs.pasted.placed import PlacedContainers, PlacedPods
from ncdiag.logs.pasted.pods import Pods
from ncdiag.logs.pasted.ports import Ports
from ncdiag.logs.pasted.query import LinkWidths, Query
from ncdiag.logs.pasted.rank_table import RankTable
from ncdiag.logs.pasted.ras import Ras
from ncdiag.logs.pasted.ray_status import RayStatus
from ncdiag.logs.pasted.services import Services
from ncdiag.logs.pasted.shards import Shards
from ncdiag.logs.pasted.smi import Apps, Smi
from ncdiag.logs.pasted.system import FileSystems, Links, Processes
from ncdiag.logs.pasted.topology_file import TopologyFile
from ncdiag.logs.pasted.traffic import Traffic
from ncdiag.logs.pasted.tunnels import Tunnels
from ncdiag.logs.pasted.verbs import Verbs
from ncdiag.logs.pasted.visible import Visible
from ncdiag.logs.scan import Reader
from ncdiag.logs.sockets import Sockets
from ncdiag.logs.stacks import Stacks
from ncdiag.logs.starts import Starts
from ncdiag.logs.torch import OutOfMemory, Watchdog
from ncdiag.logs.tracebacks import Exceptions
from ncdiag.logs.unlike import NcclVersions


@dataclass
class Readers:
    """The readers by name, for who needs more than their signals."""

    starts: Starts = field(default_factory=Starts)
    bench: Bench = field(default_factory=Bench)
    stacks: Stacks = field(default_factory=Stacks)
    sockets: Sockets = field(default_factory=Sockets)
    watchdog: Watchdog = field(default_factory=Watchdog)
    exceptions: Exceptions = field(default_factory=Exceptions)
    smi: Smi = field(default_factory=Smi)
    limits: Limits = field(default_factory=Limits)
    verbs: Verbs = field(default_factory=Verbs)
    ports: Ports = field(default_factory=Ports)
    ray_status: RayStatus = field(default_factory=RayStatus)
    visible: Visible = field(default_factory=Visible)
    elastic: Elastic = field(default_factory=Elastic)
    processes: Processes = field(default_factory=Processes)
    pods: Pods = field(default_factory=Pods)
    memory: OutOfMemory = field(default_factory=OutOfMemory)
    life: Life = field(default_factory=Life)
    services: Services = field(default_factory=Services)
    query: Query = field(default_factory=Query)
    native: Native = field(default_factory=Native)
    lasting: Lasting = field(default_factory=Lasting)
    own_store: OwnStore = field(default_factory=OwnStore)
    models: Models = field(default_factory=Models)
    heads: Heads = field(default_factory=Heads)
    memory_summary: MemorySummary = field(default_factory=MemorySummary)
    shards: Shards = field(default_factory=Shards)
    placed_pods: PlacedPods = field(default_factory=PlacedPods)
    placed_containers: PlacedContainers = field(default_factory=PlacedContainers)
    others: tuple[Reader, ...] = field(
        default_factory=lambda: (
            Addresses(),
            Members(),
            Gids(),
            FileSystems(),
            Links(),
            Pings(),
            Apps(),
            RankTable(),
            Pace(),
            NcclVersions(),
            Optics(),
            Tunnels(),
            LinkWidths(),
            DriverKind(),
            Traffic(),
            DeviceNodes(),
            Mapped(),
            Lanes(),
            TopologyFile(),
            Paused(),
            Ras(),
        )
    )

    def __post_init__(self) -> None:
        self.exceptions.caught = self.memory.caught = self.life.went_on

    def all(self) -> list[Reader]:
        return [
            self.starts,
            self.bench,
            self.stacks,
            self.sockets,
            self.watchdog,
            self.exceptions,
            self.verbs,
            self.ports,
            self.ray_status,
            self.visible,
            self.elastic,
            self.smi,
            self.limits,
            self.processes,
            self.pods,
            self.memory,
            self.life,
            self.services,
            self.query,
            self.native,
            self.lasting,
            self.own_store,
            self.models,
            Digests(),
            self.heads,
            self.memory_summary,
            self.shards,
            self.placed_pods,
            self.placed_containers,
            *self.others,
        ]

    def works(self) -> list[Line]:
        """Lines of any run that show it at work; `proofs` are the last ones."""
        return [*self.proofs(), *self.bench.averages]

    def proofs(self) -> list[Line]:
        """Lines that are printed only after all ranks had worked together."""
        found = (self.bench.worked, self.starts.served, self.life.stepped, self.starts.ready)
        return [line for line in found if line is not None]

    def seen(self) -> set[str]:
        """Sources in which a start or a step of a job was seen, wherever it led."""
        starts = {source for source, _, _ in self.starts.reached()}
        return starts | self.starts.ray_up.keys() | self.life.first_step.keys() | self.life.last_shown.keys()

    def worked_last(self, source: str) -> float:
        """Order of the last line of a source that shows its job at work; -1 where none does."""
        orders = [line.order for line in self.works() if line.source == source]
        shown = (last.get(source, -1.0) for last in (self.starts.last_shown, self.life.last_shown))
        return max((*orders, *shown))

    def worked_first(self, source: str) -> float:
        """Order of the first line of a source that shows its job at work; infinity where none does."""
        orders = [line.order for line in self.works() if line.source == source]
        return min(
            (*orders, *(first[source] for first in (self.starts.first_up, self.life.first_step) if source in first)),
            default=float("inf"),
        )
