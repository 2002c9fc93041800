"""Lines of the kernel's log that tell of a fault, as signs: what happened, to which device. Pure.

The host reads its log with it and sends the lines that are signs; the server reads those lines again, since it believes
no host's reading, and `hosts.health.verdicts` says what each sign means. What a program printed to its own log never
comes here.
"""

from __future__ import annotations

import re
from typing import List, Match, NamedTuple, Optional, Tuple

#: a longer line is cut: the sign stands at its beginning
LONGEST_LINE = 500
#: kinds that programs cause: they tell nothing of the host
OF_PROGRAMS = frozenset({"out_of_memory", "segfault"})


class Sign(NamedTuple):
    """`kind` is the first word of a row of _PATTERNS, `code` that of an Xid or SXid and 0 for all others.

    `device`: a PCI address as `0000:3b:00`, a disk, an interface or a process; empty where the line names none. `word`:
    what decides between the verdicts of one kind, such as "fatal".
    """

    kind: str
    code: int = 0
    device: str = ""
    word: str = ""


_PCI = r"(?P<pci>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-9a-f])?"


def _pci(found: Match[str]) -> str:
    """The address with a domain of four digits and without a function, which is how GPUs are known."""
    *domain, bus, device = found.group("pci").lower().split(":")
    return f"{(domain[0] if domain else '0000')[-4:]}:{bus}:{device}"


def _xid(found: Match[str]) -> Sign:
    code, text = int(found.group("code")), found.group("rest").lower()
    if code == 154:
        word = _recovery(text)
    elif 144 <= code <= 150:
        word = "nonfatal" if re.search(r"non-?fatal", text) else "fatal" if "fatal" in text else ""
    else:
        word = ""
    return Sign("xid", code, _pci(found), word)


def _recovery(text: str) -> str:
    """What the driver wants done, of `GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)`."""
    wanted = text.rpartition(" to ")[2]
    for word in ("reboot", "drain and reset", "reset", "drain"):
        if word in wanted:
            return "reset" if "reset" in word else word
    return "none"


def _sxid(found: Match[str]) -> Sign:
    text = found.group("rest").lower()
    word = "nonfatal" if re.match(r"non-?fatal", text) else "fatal" if text.startswith("fatal") else ""
    return Sign("sxid", int(found.group("code")), _pci(found), word)


def _other(kind: str, found: Match[str]) -> Sign:
    """A sign with the device that the line names, if it names one."""
    groups = found.groupdict()
    device = _pci(found) if groups.get("pci") else str(groups.get("device") or "")
    if groups.get("status") and not int(str(groups["status"]), 16) & _UNCORRECTED:
        kind = "machine_check_logged"
    return Sign(kind, 0, device, str(groups.get("word") or "").lower())


#: the bit of a machine check's status that says so
_UNCORRECTED = 1 << 61


_FS = r"(?:EXT\d-fs|XFS|BTRFS)"
_NAMED = r"(?:\(?(?:device )?(?P<device>[\w/.-]+)\)?)"
#: Kind and pattern, from the beginning of what the kernel wrote: further on it repeats names that programs choose.
#: The first that matches counts.
_PATTERNS: List[Tuple[str, str]] = [
    (
        "xid",
        rf"NVRM: Xid \((?:PCI:)?{_PCI}(?: GPU-I:\d+)?(?: GPU-CI:\d+)?\): (?P<code>\d{{1,4}})\b,?\s*(?P<rest>.*)",
    ),
    ("sxid", rf"nvidia-nvswitch\d*: SXid \((?:PCI:)?{_PCI}\): (?P<code>\d{{1,6}})\b,?\s*(?P<rest>.*)"),
    ("gpu_lost", rf"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?{_PCI}.*fallen off the bus"),
    ("gpu_lost", r"NVRM:.*fallen off the bus"),
    ("gpu_init", rf"NVRM: GPU {_PCI}:? RmInitAdapter failed"),
    ("gpu_init", r"NVRM: RmInitAdapter failed"),
    ("peermem", r"nvidia-peermem .*detected invalid context"),
    # memory and processor
    ("memory_uncorrected", r"Memory failure: 0x[0-9a-f]+: .*(?:hardware memory corruption|kill)"),
    ("memory_uncorrected", r"mce: Uncorrected hardware memory error"),
    ("memory_uncorrected", r"EDAC \S+: \d+ UE "),
    ("memory_corrected", r"EDAC \S+: \d+ CE "),
    (
        "hardware_error",
        r"(?:\{\d+\})?\[Hardware Error\]: event severity: (?P<word>fatal|recoverable|corrected)",
    ),
    ("machine_check", r"mce: \[Hardware Error\]: .*Machine Check Exception"),
    (
        "machine_check",
        r"mce: \[Hardware Error\]: .*Machine Check: \w+ Bank \d+: (?P<status>[0-9a-f]{1,16})\b",
    ),
    ("machine_check_logged", r"mce: \[Hardware Error\]: Machine check events logged"),
    ("cpu_hot", r"(?:mce: )?CPU\d+: .*temperature above threshold, cpu clock throttled"),
    # PCI Express
    ("pcie", rf"\S+ {_PCI}: (?:AER: |PCIe Bus Error: severity=).*?Uncorrect\w+ \(Fatal\)"),
    (
        "pcie_minor",
        rf"\S+ {_PCI}: (?:AER: |PCIe Bus Error: severity=).*?(?:Uncorrect\w+ \(Non-Fatal\)|Corrected)",
    ),
    # programs, and memory that ran out
    ("out_of_memory", r"(?:Out of memory|Memory cgroup out of memory): Kill(?:ed)? process (?P<device>\d+)"),
    ("out_of_memory", r"(?P<device>.{1,16}) invoked oom-killer"),
    ("out_of_memory", r"oom-kill:constraint="),
    ("segfault", r"(?P<device>.{1,16})\[\d+\]: segfault at "),
    ("segfault", r"traps: (?P<device>.{1,16})\[\d+\] "),
    # file systems and disks
    ("read_only", rf"{_FS}[^:]*?{_NAMED}?: .*(?:filesystem read-only|forced readonly|shut(?:ting)? down)"),
    ("file_system", rf"{_FS}[^:]*?{_NAMED}?: I/O error while writing superblock"),
    ("file_system", r"EXT4-fs error \(device (?P<device>[\w/.-]+)\)"),
    ("file_system", r"XFS \((?P<device>[\w/.-]+)\): .*(?:Corruption|Metadata .*error|Internal error)"),
    ("file_system", r"BTRFS (?:critical|error) \(device (?P<device>[\w/.-]+)"),
    ("disk_lost", r"nvme (?P<device>nvme\d+): (?:Removing after probe|Disabling device after reset) failure"),
    (
        "disk_reset",
        r"(?:nvme )?(?P<device>nvme\d+): (?:controller is down; will reset|I/O .*timeout, reset controller)",
    ),
    ("disk_lost", r"md/raid[\w:]*: ?Disk failure on (?P<device>[\w/-]+)"),
    ("disk_lost", r"block (?P<device>\S{1,64}): no available path - failing I/O"),
    (
        "disk_error",
        r"(?:blk_update_request: |print_req_error: )?(?:critical medium|I/O) error, dev (?P<device>\S+?),",
    ),
    ("disk_error", r"Buffer I/O error on (?:dev|device) (?P<device>\S+?),"),
    ("nfs_silent", r"nfs: server (?P<device>\S+) (?:not responding|timed out)"),
    # network
    ("nic_power", rf"mlx5_\w+(?: {_PCI})?.*Detected insufficient power"),
    ("nic_cable", rf"(?:mlx5_\w+(?: {_PCI})?.*)?Port module event.*(?:error|High Temperature)"),
    (
        "nic_fatal",
        rf"mlx5_core {_PCI}.*(?:health compromised|Fatal (?:firmware )?error|fatal state|internal state error)",
    ),
    ("nic_stuck", r"(?:\S+ \S+ )?(?:(?P<device>\S{1,15}): )?NETDEV WATCHDOG: .*transmit queue \d+ timed out"),
    ("link_down", r"(?:\S+ ){0,4}(?P<device>\S{1,64}):? (?:NIC )?Link is Down\b"),
    ("link_down", r"(?:\S+ ){0,3}(?P<device>\S{1,64}): (?:IB )?link (?:went )?down\b"),
    # the kernel itself
    ("soft_lockup", r"(?:NMI )?(?:watchdog: )?BUG: soft lockup - CPU#(?P<device>\d+) stuck"),
    ("hard_lockup", r"(?:NMI )?watchdog: (?:CPU\d+: )?(?:Watchdog detected )?hard LOCKUP on cpu"),
    ("kernel_bug", r"BUG: unable to handle |general protection fault[,:] |Oops: .*\[#\d+\]|kernel BUG at "),
    ("kernel_bug", r"Kernel panic - (?:not )?syncing: "),
    ("task_blocked", r"INFO: task (?P<device>.{1,16}?):\d+ blocked for more than \d+ seconds"),
    ("rcu_stall", r"rcu: INFO: \S+ (?:self-)?detected stalls?"),
]
#: what precedes it in a journal or in `dmesg -T`: time stamps, a host's name, the level
_BEFORE = re.compile(
    r"(?:<\d+>)?(?:kern +:\w+ *: )?"
    r"(?:(?:\[[\d .:A-Za-z/]{0,40}\]|\w{3} +\d+ [\d:]{8}|\d{4}-\d\d-\d\dT[\d:,.+-]+) )*(?:(?:[\w.-]{1,64} )?kernel: )?"
    r"(?:\[ *[\d.]+\] )?"
)
_COMPILED = [(kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _PATTERNS]
#: a line without any of these, in small letters, is no sign: found out without trying all patterns
_HINTS = (
    "xid", "nvrm", "peermem", "memory failure", "mce:", "edac", "hardware error", "threshold", "aer:",
    "pcie bus error", "out of memory", "oom", "segfault", "traps:", "read-only", "readonly", "shut", "-fs", "xfs",
    "btrfs", "nvme", "md/raid", "error, dev", "buffer i/o", "block ", "nfs:", "mlx5", "port module", "link", "watchdog",
    "lockup", "bug", "protection fault", "oops", "panic", "blocked for", "rcu:",
)  # fmt: skip


def sign_of(line: str) -> Optional[Sign]:
    """The sign in a line, which may have time stamps in front; None for all that is none."""
    line = line[:LONGEST_LINE]
    small = line.lower()
    if not any(hint in small for hint in _HINTS):
        return None
    before = _BEFORE.match(line)
    for kind, pattern in _COMPILED:
        found = pattern.match(line, before.end() if before else 0)
        if found:
            return _xid(found) if kind == "xid" else _sxid(found) if kind == "sxid" else _other(kind, found)
    return None
