"""What the variables that matter at start-up do, in a line each: name, default (`-`: none), effect.

Source: NVIDIA/nccl v2.18.3-1 to v2.30.7-1, vllm/envs.py, torch/csrc/distributed/c10d, Ray's and CUDA's documentation.
"""

from __future__ import annotations

NCCL = """
SOCKET_IFNAME | - | Interfaces for the bootstrap and the socket transport. Prefixes in a list; `=` exact names, `^` all but these. Without it: ib*, then any but docker*, lo, virbr*
SOCKET_FAMILY | - | Only AF_INET or only AF_INET6 addresses
SOCKET_NTHREADS | by cloud | Helper threads of a socket connection, up to 16; times NCCL_NSOCKS_PERTHREAD up to 64
NSOCKS_PERTHREAD | by cloud | TCP connections of a helper thread
SOCKET_RETRY_CNT | 34 | How often a refused or unanswered connection is tried again
SOCKET_RETRY_SLEEP_MSEC | 100 | Pause before the k-th new try is k times this
COMM_ID | - | `address:port` where rank 0 listens, in place of the exchanged id
HOSTID | host name and boot id | Ranks with the same text count as one node
OOB_NET_ENABLE | 0 | 1: the bootstrap goes through the network plugin
IB_HCA | all | RDMA devices to use. Prefixes in a list, each `name` or `name:port`; `=` exact, `^` all but these. mlx5_1 also takes mlx5_10
IB_DISABLE | 0 | 1: no RDMA, TCP sockets instead. `true` is 0
IB_GID_INDEX | -1 (0 before 2.21) | Entry of the GID table on RoCE; -1: looked for (2.21 and newer). It differs between machines, so a copied number is often empty
IB_ROCE_VERSION_NUM | 2 | RoCE version that the search for a GID wants
IB_ADDR_FAMILY | AF_INET | Address family that the search for a GID wants
IB_ADDR_RANGE | - | Network (CIDR) that the GID found must be in
IB_TC | 0 | Traffic class byte of RDMA packets: DSCP is this divided by 4. 0 is the ordinary, lossy class
IB_SL | 0 | InfiniBand service level, or the VLAN priority on RoCE
IB_TIMEOUT | 20 (18 before 2.23) | Wait for an acknowledgement: 4.096 us times 2 to this power (20: 4.3 s)
IB_RETRY_CNT | 7 | How often a packet without acknowledgement is sent again, before status 12
IB_PKEY | 0 | Index (not value) in the port's partition key table
IB_QPS_PER_CONNECTION | 1 | Queue pairs of a connection; more spread over equal paths
IB_SPLIT_DATA_ON_QPS | 0 (1 before 2.20) | 1: each message is cut over all queue pairs
IB_ADAPTIVE_ROUTING | 1 on InfiniBand, 0 on RoCE | Whether packets may come out of order by other paths
IB_PCI_RELAXED_ORDERING | 2 | Relaxed ordering for memory regions: 0 off, 1 on, 2 where the library can
IB_MERGE_NICS | 1 | Ports of one card become one device of double speed
IB_MERGE_VFS | 1 | Virtual functions of one card count as one card
IB_ECE_ENABLE | 1 | Congestion control is agreed on at connection time
IB_DATA_DIRECT | 1 | ConnectX-8 data-direct function: 0 off, 1 on, 2 both shown
NET | by speed | Network by name: IB, Socket, a plugin's. If it cannot be used NCCL ends
NET_PLUGIN | - | Plugin library: suffix, file or path; `none`: only what is built in
NET_GDR_LEVEL | PXB (P2C from 2.29) | Farthest distance of GPU and card for GPUDirect RDMA: LOC (never), PIX, PXB, P2C, PXN, PHB, SYS (always); exact capitals
NET_GDR_READ | 1 from Ampere on | Whether cards also read (send) GPU memory directly
NET_GDR_C2C | 1 from 2.27 | GPUDirect through the CPU on chips joined by C2C
DMABUF_ENABLE | 1 | GPUDirect by DMA-BUF where kernel, driver and card can
CROSS_NIC | 2 | Rings may use other cards at their two ends: 0 no, 1 yes, 2 if it helps
PXN_DISABLE | 0 | 1: no sending through the card beside a neighbour GPU
P2P_DISABLE | 0 | 1: no GPU-to-GPU copies, NVLink included
P2P_LEVEL | PXB | Farthest distance of two GPUs for direct copies: LOC, NVL, PIX, PXB, PHB, SYS; exact capitals
SHM_DISABLE | 0 | 1: no shared memory inside a node; ranks then use the network
CUMEM_ENABLE | -2 | cuMem allocation: 0 off, 1 on, -2 where the driver can. NVLS and multi-node NVLink need it
CUMEM_HOST_ENABLE | -1 | The same for host buffers
NVLS_ENABLE | 2 | NVLink SHARP: 0 off, 1 or nothing, 2 where it works
MNNVL_ENABLE | 2 | Multi-node NVLink: 0 off, 1 or nothing, 2 where it works
COLLNET_ENABLE | 0 | 1: reductions in the switch (SHARP), with its plugin
ALGO | by cost | Algorithms that may be used; must be equal on all ranks
PROTO | by cost | Protocols that may be used (LL, LL128, Simple); must be equal on all ranks
BUFFSIZE | 4194304 | Bytes of a channel's buffer; must be equal on all ranks
MIN_NCHANNELS | by machine | At least so many channels
MAX_NCHANNELS | by machine | At most so many channels
MIN_CTAS | by machine | At least so many blocks of a kernel
MAX_CTAS | by machine | At most so many blocks of a kernel
IGNORE_CPU_AFFINITY | 0 | 1: helper threads go to the GPU's CPUs whatever the process was bound to
IGNORE_DISABLED_P2P | 0 | 1: no complaint where the driver says that copies are off, 2: it is not asked
TOPO_FILE | - | Topology to load before looking; one of another machine type misleads
TOPO_DUMP_FILE | - | Where the topology is written (`ncdiag topo FILE` reads it)
GRAPH_FILE | - | Rings and trees to load
GRAPH_DUMP_FILE | - | Where rings and trees are written (`ncdiag topo FILE` reads it)
DEBUG | - | VERSION, WARN, INFO, TRACE: how much is logged. INFO for a hunt, WARN for every day
DEBUG_SUBSYS | INIT,BOOTSTRAP,ENV | Parts that INFO covers; `^` leaves out
DEBUG_FILE | stdout | Log file; %h host and %p process, or all ranks write over one file
RUNTIME_CONNECT | 1 | Connections are made at first use (2.22 and newer)
LAUNCH_MODE | PARALLEL | PARALLEL or GROUP
CONF_FILE | ~/.nccl.conf | File of settings read before /etc/nccl.conf
RAS_ENABLE | 1 | The service that `ncclras` and `ncdiag hang-dump` ask
RAS_ADDR | localhost:28028 | Where that service listens
RUN_DIAGNOSTICS | - | Built-in checks at the start (2.31 and newer)
TUNER_PLUGIN | - | Library that chooses algorithms
SOCKET_POLL_TIMEOUT_MSEC | 0 | How long a wait for sockets sleeps; 0: it spins
SOCKET_INLINE | 128 | Bytes that travel with the header
SOCKET_MIN_TASKSIZE | 65536 | Smallest piece that one connection gets
SOCKET_RCVBUF | -1 | Receive buffer of a connection; -1: the kernel's
SOCKET_SNDBUF | -1 | Send buffer of a connection; -1: the kernel's
SOCKET_MAGIC | - | First word of every connection, in hex; must be equal on all ranks
OOB_NET_IFNAME | - | Devices for a bootstrap through the plugin, written like NCCL_IB_HCA
UID_STAGGER_THRESHOLD | 256 | From so many ranks on they call the root one after the other
UID_STAGGER_RATE | 7000 | So many of them a second
IBVERBS_LIB | libibverbs.so.1 | The verbs library to load
IB_AR_THRESHOLD | 8192 | From so many bytes on, with adaptive routing, data and completion go apart
IB_DEVICE_PCI_ORDER | 1 | Devices are numbered by their place on the PCI bus
IB_FIFO_TC | -1 | Traffic class of the control messages; -1: that of the data
IB_MQP_RETRY_ALL | 0 | 1: setting up a queue pair is tried again after any error, not only after a time-out
IB_MQP_RETRY_CNT | 34 | How often that is tried
IB_MQP_RETRY_SLEEP_MSEC | 100 | Pause before the k-th new try is k times this
IB_OOO_RQ | 0 | 1: receive queues that take packets in any order
IB_PKEY_VALUE | - | The partition key itself
IB_PREPOST_RECEIVE_WORK_REQUESTS | -2 | Receive requests are posted ahead
IB_QUERY_PORT_SPEED | 1 | The port's speed is asked by the newer verbs call
IB_RESILIENCY_PORT_FAILOVER | 0 | 1: after a port's failure its traffic goes over another port of the merged card
IB_RESILIENCY_PORT_RECOVERY | 0 | 1: a port that failed is taken back
IB_RETURN_ASYNC_EVENTS | 1 | A device's fatal event becomes an error of the communicator
IB_ROUTABLE_FLID_GID_INDEX | 1 | On InfiniBand: the GID entry looked at for a routable FLID
IB_SUBNET_AWARE_ROUTING | 0 | 1: the card in the peer's network is taken
IB_SUBNET_PREFIX_LEN | 24 | Bits of an address that make that network
IB_USE_INLINE | 0 | 1: small messages are sent inside the request
IB_WARN_RAIL_LOCAL | 0 | 1: connections that leave their rail are logged
IB_WQE_LATENCY_REPORT | - | Latencies of single requests are logged
GDRCOPY_ENABLE | 0 | 1: the GDRCopy library moves small data
GDR_FLUSH_DISABLE | 0 | 1: received data is not flushed; not safe before Hopper
NET_FORCE_FLUSH | 0 | 1: it is flushed on Hopper and newer too
NET_DISABLE_INTRA | 0 | 1: ranks of one node never use the network between them
NETDEVS_POLICY | AUTO | Cards of each GPU: AUTO, ALL, or MAX:n
NET_FORCE_MERGE | - | Cards to join into one device: `a,b;c,d`
NET_MERGE_LEVEL | PORT | Ports of one card that are this near become one device; LOC: none
NET_MERGE_POLICY | ALL | Which devices may be joined: ALL or RAIL
PROXY_CPUSET | - | CPUs for the helper threads
P2P_DIRECT_DISABLE | 0 | 1: no direct pointers between GPUs of one process
P2P_READ_ENABLE | -2 | GPUs read from their peers in place of writing
P2P_USE_CUDA_MEMCPY | 0 | 1: copies by the copy engines
P2P_PXN_LEVEL | 2 | Send and receive through a neighbour's card: 0 never, 1 where needed, 2 to join messages
PXN_C2C | 1 | The same over chips joined by C2C
NVB_DISABLE | 0 | 1: no NVLink by way of a GPU in between
NVLS_NCHANNELS | by machine | Channels of NVLink SHARP
MNNVL_UUID | -1 | Another identity of the NVLink fabric than the driver tells
MNNVL_CLIQUE_ID | -1 | Another clique than the driver tells; -2: by rack
MULTI_RANK_GPU_ENABLE | 0 | 1: several ranks may share a GPU
SHM_LOCALITY | 2 | Side that holds the shared buffer: 1 sender, 2 receiver
COLLNET_NODE_THRESHOLD | 2 | Fewest nodes for reductions in the switch
COMM_BLOCKING | 1 | 0: calls return before a communicator is ready
CONNECT_ROUND_MAX_PEERS | 128 | Peers that are connected at one time
NCHANNELS_PER_NET_PEER | by version | Channels to each peer over the network
NTHREADS | by GPU | Threads of a block; must be equal on all ranks
LL_BUFFSIZE | by protocol | Buffer of the LL protocol; must be equal on all ranks
LL128_BUFFSIZE | by protocol | Buffer of the LL128 protocol; must be equal on all ranks
P2P_NET_CHUNKSIZE | 131072 | Bytes of a piece over the network; must be equal on all ranks
P2P_NVL_CHUNKSIZE | 524288 | Bytes of a piece over NVLink; must be equal on all ranks
P2P_PCI_CHUNKSIZE | 131072 | Bytes of a piece over PCIe; must be equal on all ranks
LAUNCH_ORDER_IMPLICIT | 0 | 1: launches of several communicators are put in one order
GRAPH_REGISTER | 1 | Buffers used in CUDA graphs are registered
LOCAL_REGISTER | 1 | Buffers may be registered by the application
GRAPH_MIXING_SUPPORT | 1 | Calls inside and outside CUDA graphs may mix
WIN_ENABLE | 1 | Symmetric memory windows
CHECK_POINTERS | 0 | 1: every call checks its buffers
DEBUG_TIMESTAMP_FORMAT | [%F %T] | Time in front of log lines, as strftime writes it
DEBUG_TIMESTAMP_LEVELS | WARN | Levels whose lines get it
SET_THREAD_NAME | 0 | 1: threads get names, which `py-spy --native` and `ps -L` show
REPORT_CONNECT_PROGRESS | 0 | 1: rank 0 says how far the bootstrap is
WARN_ENABLE_DEBUG_INFO | 0 | 1: after the first WARN, INFO is logged too
PARAM_DUMP_ALL | 0 | 1: all settings are logged at the start
TOPO_DUMP_FILE_RANK | 0 | Rank that writes the topology
GRAPH_DUMP_FILE_RANK | 0 | Rank that writes rings and trees
PROXY_DUMP_SIGNAL | -1 | Signal at which the helper thread prints its state
RAS_TIMEOUT_FACTOR | 1 | All time limits of the RAS service, times this
PROFILER_PLUGIN | - | Library that is told of every step
ENV_PLUGIN | - | Library that gives settings
GIN_ENABLE | 1 | Network transfers started by the GPU
"""

OTHERS = """
VLLM_HOST_IP | source of the default route | Address of this node that vLLM tells the others. Must differ from node to node
VLLM_PORT | free ports | First of the ports inside the engine; not the port of the API. Kubernetes sets it by itself for a Service called vllm
VLLM_LOOPBACK_IP | 127.0.0.1 | Address for processes of one node
VLLM_NCCL_SO_PATH | torch's | The NCCL library that vLLM itself loads
VLLM_DISABLE_PYNCCL | 0 | 1: vLLM's own NCCL calls are off, torch's are used
VLLM_USE_RAY_COMPILED_DAG | by version | Ray's compiled graphs between the workers
VLLM_ENGINE_READY_TIMEOUT_S | 600 | Seconds that the API waits for its engine
VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS | 300 | Seconds that one step may take
VLLM_WORKER_MULTIPROC_METHOD | fork | How workers are started: fork or spawn
VLLM_LOGGING_LEVEL | INFO | How much vLLM logs
VLLM_RAY_PER_WORKER_GPUS | 1.0 | GPUs that a Ray worker asks for
GLOO_SOCKET_IFNAME | link of the host name's address | Interface of gloo's TCP connections: exact names, no signs
TP_SOCKET_IFNAME | link of the host name's address | The same for TensorPipe
MASTER_ADDR | - | Where rank 0's store listens: the same on all nodes
MASTER_PORT | - | Its port: the same on all nodes
RANK | - | Number of this process in the whole group
WORLD_SIZE | - | Processes in the whole group
LOCAL_RANK | - | Number of this process on its node, which is its GPU
CUDA_VISIBLE_DEVICES | all | GPUs that the process sees, and their order; the list ends at the first that is none
NVIDIA_VISIBLE_DEVICES | by image | GPUs that the container gets
CUDA_DEVICE_ORDER | FASTEST_FIRST | PCI_BUS_ID: numbered as nvidia-smi does
CUDA_DEVICE_MAX_CONNECTIONS | 8 | Hardware queues of kernels of one process
CUDA_LAUNCH_BLOCKING | 0 | 1: every kernel is waited for; slow
TORCH_NCCL_ASYNC_ERROR_HANDLING | 3 | What the watchdog does with a collective that hangs; 0: nothing
TORCH_NCCL_BLOCKING_WAIT | 0 | 1: every wait blocks, and there is no watchdog
TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC | 480 | Seconds after which a stuck watchdog ends the process
TORCH_NCCL_TRACE_BUFFER_SIZE | 2000 | Collectives kept for the flight recorder; 0: off
TORCH_NCCL_DUMP_ON_TIMEOUT | true | The flight recorder writes its file when a collective hangs
TORCH_NCCL_DEBUG_INFO_TEMP_FILE | /tmp/nccl_trace_rank_ | Where it writes it
TORCH_DISTRIBUTED_DEBUG | OFF | INFO, or DETAIL: every collective is checked with another one; slow
TORCH_CPP_LOG_LEVEL | WARNING | How much torch's C++ side logs
RAY_ADDRESS | - | The Ray cluster that a driver joins
RAY_NODE_IP_ADDRESS | source of the default route | Address of this Ray node
RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES | 0 | 1: Ray leaves CUDA_VISIBLE_DEVICES alone
HF_HUB_OFFLINE | 0 | 1: nothing is downloaded, models must be in the cache of every node
OMP_NUM_THREADS | cores | Threads of one process on the CPU; torchrun sets 1
"""
