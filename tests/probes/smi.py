"""COMPOSED output of nvidia-smi, after the form that drivers 535 to 570 print; no capture of a real machine."""

from __future__ import annotations

from typing import Any

from tests.probes.machines import Machine

HEALTHY: dict[str, Any] = {
    "name": "NVIDIA H100 80GB HBM3", "mode": "Default", "persistence": "Enabled", "mig": "Disabled", "ecc": "Enabled",
    "volatile": 0, "aggregate": 0, "pending": "No", "failure": "No", "recovery": "None", "throttle": (), "limit": 700, "default": 700,
    "clock": 1980, "used": 4, "processes": (), "fabric": ("Completed", "Success"), "temperature": 35, "application": 1980,
    "cluster": "00000000-0000-0000-0000-000000000000", "clique": "0", "gen": 5, "width": 16,
}  # fmt: skip

REASONS = (
    "gpu_idle",
    "sw_power_cap",
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "sw_thermal_slowdown",
)


def gpu_element(address: str, minor: int, **changes: Any) -> str:
    one = {**HEALTHY, **changes}
    reasons = "".join(
        f"<clocks_event_reason_{reason}>{'Active' if reason in one['throttle'] else 'Not Active'}</clocks_event_reason_{reason}>"
        for reason in REASONS
    )
    processes = "".join(
        f"<process_info><pid>{pid}</pid><type>C</type><process_name>{name}</process_name><used_memory>{mib} MiB</used_memory></process_info>"
        for pid, name, mib in one["processes"]
    )
    return f"""<gpu id="0000{address.upper()}">
<product_name>{one["name"]}</product_name><persistence_mode>{one["persistence"]}</persistence_mode>
<mig_mode><current_mig>{one["mig"]}</current_mig></mig_mode><uuid>GPU-{minor:08d}</uuid>
<pci><pci_bus_id>0000{address.upper()}</pci_bus_id><pci_gpu_link_info>
<pcie_gen><max_link_gen>5</max_link_gen><current_link_gen>{one["gen"]}</current_link_gen></pcie_gen>
<link_widths><max_link_width>16x</max_link_width><current_link_width>{one["width"]}x</current_link_width></link_widths></pci_gpu_link_info></pci>
<clocks_event_reasons>{reasons}</clocks_event_reasons>
<fb_memory_usage><total>81559 MiB</total><used>{one["used"]} MiB</used></fb_memory_usage>
<bar1_memory_usage><total>131072 MiB</total></bar1_memory_usage><compute_mode>{one["mode"]}</compute_mode>
<utilization><gpu_util>0 %</gpu_util></utilization><ecc_mode><current_ecc>{one["ecc"]}</current_ecc></ecc_mode>
<ecc_errors><volatile><sram_uncorrectable_parity>0</sram_uncorrectable_parity><dram_uncorrectable>{one["volatile"]}</dram_uncorrectable></volatile>
<aggregate><dram_uncorrectable>{one["aggregate"]}</dram_uncorrectable></aggregate></ecc_errors>
<remapped_rows><remapped_row_pending>{one["pending"]}</remapped_row_pending><remapped_row_failure>{one["failure"]}</remapped_row_failure></remapped_rows>
<temperature><gpu_temp>{one["temperature"]} C</gpu_temp></temperature><gpu_recovery_action>{one["recovery"]}</gpu_recovery_action>
<gpu_power_readings><current_power_limit>{one["limit"]:.2f} W</current_power_limit><default_power_limit>{one["default"]:.2f} W</default_power_limit></gpu_power_readings>
<clocks><sm_clock>345 MHz</sm_clock></clocks><max_clocks><sm_clock>{one["clock"]} MHz</sm_clock></max_clocks>
<applications_clocks><graphics_clock>{one["application"]} MHz</graphics_clock></applications_clocks>
<default_applications_clocks><graphics_clock>1980 MHz</graphics_clock></default_applications_clocks>
<fabric><state>{one["fabric"][0]}</state><status>{one["fabric"][1]}</status><cliqueId>{one["clique"]}</cliqueId><clusterUuid>{one["cluster"]}</clusterUuid></fabric>
<processes>{processes}</processes></gpu>"""


def with_gpus(
    machine: Machine,
    addresses: list[str],
    *,
    odd: dict[int, dict[str, Any]] | None = None,
    driver: str = "570.86.15",
    cuda: str = "12.8",
    links: int = 18,
    dark: dict[int, list[int]] | None = None,
    errors: dict[int, int] | None = None,
    sm: str = "9.0",
    **every: Any,
) -> Machine:
    """Adds what nvidia-smi would say of GPUs at these PCI addresses."""
    elements = "".join(
        gpu_element(address, place, **{**every, **(odd or {}).get(place, {})})
        for place, address in enumerate(addresses)
    )
    log = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
    log += f"<driver_version>{driver}</driver_version><cuda_version>{cuda}</cuda_version>{elements}</nvidia_smi_log>\n"
    machine.command("nvidia-smi -q -x", log)
    rows = "".join(f"{place}, 0000{address.upper()}, {sm}\n" for place, address in enumerate(addresses))
    machine.command("nvidia-smi --query-gpu=index,pci.bus_id,compute_cap --format=csv,noheader", rows)
    state, wrong = "", ""
    for place in range(len(addresses)):
        head = f"GPU {place}: NVIDIA H100 80GB HBM3 (UUID: GPU-{place:08d})\n"
        state += head + "".join(
            f"\t Link {link}: {'<inactive>' if link in (dark or {}).get(place, []) else '26.562 GB/s'}\n"
            for link in range(links)
        )
        wrong += head + "".join(
            f"\t Link {link}: Replay Errors: {(errors or {}).get(place, 0) if link == 0 else 0}\n\t Link {link}: Recovery Errors: 0\n"
            f"\t Link {link}: CRC Errors: 0\n"
            for link in range(links)
        )
    machine.command("nvidia-smi nvlink -s", state)
    machine.command("nvidia-smi nvlink -e", wrong)
    return machine


def addresses(count: int = 8) -> list[str]:
    """Those of `machines.eight_rails`."""
    return [f"0000:{0x13 + 4 * i:02x}:00.0" for i in range(count)]
