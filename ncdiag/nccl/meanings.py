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
