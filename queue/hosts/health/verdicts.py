"""What a sign means for the GPU or the host, and what to do: one table, pure.

For Xids it follows the immediate action of NVIDIA's catalog ("Analyzing Xid Errors with the Xid Catalog", Ampere and
newer), for SXids the word that the driver prints (Fabric Manager's guide). A code that is in neither is shown and
changes nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from trainmaster.kernel_signs import Sign, sign_of


class Action(StrEnum):
    """What a person, or the server, should do."""

    NOTHING = "nothing"
    PROGRAM = "program"  # the program's own fault
    RESTART = "restart"  # the program is started again; the hardware is fine
    RESET = "reset"  # of the GPU
    REBOOT = "reboot"  # of the host
    VENDOR = "vendor"  # hardware, cables or firmware have to be looked at


class Scope(StrEnum):
    """What is taken out of use."""

    NONE = ""
    GPU = "gpu"
    HOST = "host"


@dataclass(frozen=True)
class Verdict:
    """`what` and `advice` are sentences. `fails`: what computes there fails or hangs anyway, and is better stopped.

    `heals`: the state may end by itself, and what is out of use for it then comes back.
    """

    action: Action
    what: str
    scope: Scope = Scope.NONE
    fails: bool = False
    advice: str = ""
    heals: bool = False

    @property
    def sentence(self) -> str:
        return f"{self.what} {self.advice or _ADVICE[self.action]}"


_ADVICE = {
    Action.NOTHING: "Nothing has to be done.",
    Action.PROGRAM: "The program caused it; the GPU is fine.",
    Action.RESTART: "The program has to start again; the GPU can be used.",
    Action.RESET: "The GPU has to be reset (nvidia-smi --gpu-reset, or a reboot) before it is used again.",
    Action.REBOOT: "The host has to be rebooted.",
    Action.VENDOR: "Have the hardware looked at.",
}


def _reset(what: str, *, fails: bool = True) -> Verdict:
    return Verdict(Action.RESET, what, Scope.GPU, fails)


def _restart(what: str) -> Verdict:
    return Verdict(Action.RESTART, what)


def _program(what: str) -> Verdict:
    return Verdict(Action.PROGRAM, what)


def _nothing(what: str, advice: str = "") -> Verdict:
    return Verdict(Action.NOTHING, what, advice=advice)


_ENGINE = "An engine of the GPU reported an error and its program was ended."
_LOST = Verdict(
    Action.REBOOT,
    "The GPU has fallen off the bus: the driver cannot reach it any more.",
    Scope.GPU,
    fails=True,
    advice="Reboot the host; if it happens again, check power, seating and temperature, and call the vendor.",
)
_FIRMWARE = _reset("The GPU's firmware (GSP) does not answer or has failed.")
_LINK = _reset("A link of the GPU (NVLink) failed.")
_FOLLOWS = "It follows another error, which says more."

#: Xid -> verdict
_XIDS: dict[int, Verdict] = {
    11: _program("The program sent invalid commands to the GPU."),
    13: _program("The program caused an exception in the GPU, such as an access out of bounds."),
    25: _program("The program sent invalid commands to the GPU."),
    31: _program("The program accessed memory of the GPU that is not its own."),
    32: _program("The program sent invalid commands to the GPU."),
    43: _program("The GPU stopped work of a program after an error of the program."),
    69: _program("The program sent invalid commands to the GPU."),
    80: _program("The program sent corrupted data to the GPU."),
    8: _restart("The GPU stopped working on a program."),
    60: _restart("The video engine reported an error and its program was ended."),
    94: _restart("A memory error that could not be corrected hit one program, which was ended; others are unharmed."),
    37: _nothing("The driver's firmware reported an error that needs no action."),
    38: _nothing("The driver's firmware reported a timeout that needs no action."),
    44: _nothing("The GPU reported a fault while it changed between programs."),
    45: _nothing("A program's work was removed from the GPU.", _FOLLOWS),
    63: _nothing("The GPU set memory aside for replacement.", "It takes effect at the next reset."),
    66: _nothing("The driver made an illegal access."),
    67: _nothing("The driver made an illegal access."),
    78: _nothing("A virtual GPU did not start.", "Bring the driver and its license up to date."),
    92: _nothing("The GPU corrects many memory errors.", "If it continues, have it looked at."),
    93: _nothing("The GPU's own store of settings is written often."),
    106: _nothing("A test message of the management bus."),
    107: _nothing("A test message of the management bus."),
    121: _nothing("The link between GPU and processor corrected an error."),
    137: _nothing("A link of the GPU (NVLink) refused an access.", "If it comes often, find the program."),
    141: _nothing("The GPU took a slow path for a program."),
    152: _nothing("An accelerator beside the GPU refused an access."),
    153: _nothing("An accelerator beside the GPU took too long."),
    157: _nothing("The GPU could not set a faulty part aside.", "If it comes again, have it looked at."),
    160: _nothing("The GPU set a faulty channel of its memory aside."),
    161: _nothing("The GPU could not set a faulty channel aside.", "If it comes again, have it looked at."),
    162: _nothing("The GPU's power smoothing works again."),
    163: _nothing("The GPU's power smoothing is off."),
    164: _nothing("The parts for the GPU's power smoothing are nearly worn out."),
    171: _nothing("Details of a memory error.", _FOLLOWS),
    172: _nothing("Details of a memory error.", _FOLLOWS),
    46: _reset("The GPU stopped processing."),
    48: _reset("The GPU met a memory error that it could not correct."),
    62: _reset("The GPU's internal controller halted."),
    64: _reset("The GPU could not set faulty memory aside.", fails=False),
    74: _LINK,
    95: _reset("A memory error that could not be corrected may have harmed every program on the GPU."),
    109: _reset("The GPU could not change from one program to another."),
    110: _reset("The GPU reported a security fault."),
    119: _FIRMWARE,
    120: _FIRMWARE,
    136: _reset("A link of the GPU (NVLink) could not be trained.", fails=False),
    140: _reset("The GPU met a memory error that it could not correct."),
    143: _reset("The GPU could not be initialized."),
    155: _LINK,
    156: _reset("The GPU set a faulty part aside, which takes effect with a reset.", fails=False),
    158: _reset("The GPU did not answer within its last limit."),
    168: _reset("The GPU found errors in its protected memory."),
    169: _reset("The GPU's internal controller halted."),
    54: Verdict(
        Action.VENDOR, "The GPU's power cable is not connected.", Scope.GPU, advice="Check cable and power supply."
    ),
    79: _LOST,
    151: Verdict(Action.REBOOT, "The GPU could not renew its keys.", Scope.GPU, fails=True),
    167: Verdict(Action.REBOOT, "The GPU did not answer over PCI Express.", Scope.GPU, fails=True),
    165: Verdict(Action.VENDOR, "The parts for the GPU's power smoothing are worn out."),
}  # fmt: skip
#: copy (39 to 41, 70 to 77, 85, 126 to 135), video and image engines
_ENGINES = {
    39, 40, 41, 68, 70, 71, 72, 75, 76, 77, *range(82, 87), 88, 89, *range(96, 106), *range(126, 136), 139,
}  # fmt: skip
_XIDS.update(dict.fromkeys(_ENGINES, _restart(_ENGINE)))

#: Xid 154, in which the driver itself says what the GPU needs
_RECOVERY = {
    "none": _nothing("The driver says that the GPU needs no recovery."),
    "drain": Verdict(
        Action.RESET, "The driver asks that nothing new starts on the GPU.", Scope.GPU, advice="Reset it when free."
    ),
    "reset": _reset("The driver says that the GPU has to be reset."),
    "reboot": Verdict(Action.REBOOT, "The driver says that the host has to be rebooted.", Scope.HOST, fails=True),
}  # fmt: skip

_UNKNOWN = _nothing(
    "The driver reported an error that its public catalog does not explain.",
    "If it comes again, ask the vendor.",
)
_MEMORY = Verdict(
    Action.VENDOR,
    "The host's memory has an error that could not be corrected.",
    Scope.HOST,
    advice="Have it replaced.",
)

_OTHERS: dict[str, Verdict] = {
    "gpu_lost": _LOST,
    "gpu_init": _reset("The driver could not initialize the GPU."),
    "peermem": _nothing("The driver skipped memory of a program that had ended."),
    "memory_uncorrected": _MEMORY,
    "memory_corrected": _nothing("The host's memory corrected an error."),
    "machine_check": Verdict(Action.VENDOR, "The processor reported a machine check.", Scope.HOST),
    "machine_check_logged": _nothing("The processor logged an event that it corrected."),
    "cpu_hot": _nothing("The processor is hot and runs slower.", "Check the cooling if it continues."),
    "pcie": Verdict(Action.REBOOT, "A device on PCI Express had a fatal error.", Scope.HOST),
    "pcie_minor": _nothing("A device on PCI Express had an error that was corrected."),
    "out_of_memory": _program("The host or the program's share of it ran out of memory, and the program was ended."),
    "segfault": _program("A program crashed."),
    "read_only": Verdict(
        Action.VENDOR, "A file system can only be read since its disk failed.", Scope.HOST,
        advice="Check the disk, then the file system.",
    ),
    "file_system": Verdict(
        Action.VENDOR, "A file system is damaged.", Scope.HOST, advice="Check the disk, then the file system."
    ),
    "disk_lost": Verdict(Action.VENDOR, "A disk failed and is no longer used.", Scope.HOST, advice="Have it replaced."),
    "disk_reset": _nothing("A disk did not answer and was reset.", "If it continues, have it looked at."),
    "disk_error": Verdict(Action.VENDOR, "A disk could not read or write.", advice="Have the disk looked at."),
    "nfs_silent": _nothing("A file server does not answer.", "Programs that use it wait until it does."),
    "nic_power": Verdict(Action.VENDOR, "A network card gets too little power from its slot."),
    "nic_cable": Verdict(Action.VENDOR, "A network port reports its cable or module.", advice="Check the cable."),
    "nic_fatal": Verdict(Action.REBOOT, "A network card failed.", Scope.HOST),
    "nic_stuck": _nothing("A network card stopped sending and was reset.", "If it comes often, have it looked at."),
    "link_down": _nothing("A network link went down.", "If it comes often, check the cable."),
    "soft_lockup": Verdict(Action.REBOOT, "A processor was stuck in the kernel.", Scope.HOST),
    "hard_lockup": Verdict(Action.REBOOT, "A processor hangs in the kernel.", Scope.HOST, fails=True),
    "kernel_bug": Verdict(Action.REBOOT, "The kernel itself met an error.", Scope.HOST),
    "task_blocked": _nothing("A process waits for long, mostly for a disk or a file server."),
    "rcu_stall": _nothing("A processor was busy in the kernel for long.", "If it continues, reboot the host."),
}  # fmt: skip

_CABLE = "If it stays so, check cable and port."
#: what a host measures of itself (`hosts.health.states`)
_OTHERS.update({
    "gpu_needs_reset": _reset("The driver cannot use the GPU before it is reset."),
    "ecc_uncorrected": _nothing(
        "The GPU met memory errors that it could not correct.", "The kernel's log says whether it has to be reset."
    ),
    "ecc_unexplained": _reset(
        "The GPU met memory errors that it could not correct, and the kernel's log, which says more, cannot be read.",
        fails=False,
    ),
    "rows_failed": Verdict(
        Action.VENDOR, "The GPU could not replace faulty memory.", Scope.GPU, advice="Have the GPU replaced."
    ),
    "rows_pending": _nothing("The GPU has memory to replace.", "Reset it when it is free: until then it is not done."),
    "pages_full": Verdict(
        Action.VENDOR, "The GPU has set too much faulty memory aside.", Scope.GPU, advice="Have the GPU replaced."
    ),
    "gpu_hot": Verdict(Action.VENDOR, "The GPU is too hot and runs slower.", advice="Check cooling and airflow."),
    "gpu_power_brake": Verdict(
        Action.VENDOR, "The power supply makes the GPU run slower.", advice="Check power supplies and their cables."
    ),
    "gpu_slowed": Verdict(
        Action.VENDOR, "The GPU's hardware slows it down.", advice="Check its power cables and its cooling."
    ),
    "pcie_narrow": Verdict(
        Action.VENDOR, "The GPU uses only some of the lanes of its slot.", advice="Seat the card or its riser again."
    ),
    "pcie_slow": Verdict(
        Action.VENDOR, "The GPU's link to the host is slower than both could be.", advice="Seat the card again."
    ),
    "gpu_memory_held": _nothing(
        "Memory of the GPU is in use without a process that can be seen.",
        "If no container or other machine uses it, reset the GPU.",
    ),
    "driver_hangs": Verdict(
        Action.REBOOT, "The GPU driver does not answer.", Scope.HOST, heals=True,
    ),
    "port_down": Verdict(
        Action.VENDOR, "An InfiniBand port is down.", Scope.HOST, advice="Check cable and switch.", heals=True
    ),
    "port_gone": Verdict(Action.VENDOR, "An InfiniBand port is not there any more.", advice="Check the card."),
    "port_slow": Verdict(Action.VENDOR, "An InfiniBand port is slower than it was.", advice="Check its cable."),
    "port_flaps": _nothing("An InfiniBand link went down and came back.", "If it comes often, check the cable."),
    "port_errors": Verdict(Action.VENDOR, "An InfiniBand port receives many errors.", advice="Check its cable."),
    "card_down": _nothing("A network card has lost its link.", _CABLE),
    "card_gone": _nothing("A network card is not there any more.", "If nobody took it away, have it looked at."),
    "card_slow": _nothing("A network card is slower than it was.", _CABLE),
    "card_flaps": _nothing("A network card lost its link or got it back.", "If it comes often, check the cable."),
    "storage_hangs": Verdict(
        Action.REBOOT, "A folder that every run needs does not answer.", Scope.HOST, heals=True,
        advice="Check the file server; if other hosts can use it, reboot this one.",
    ),
    "storage_read_only": Verdict(
        Action.VENDOR, "A folder that every run needs can only be read.", Scope.HOST, heals=True,
        advice="Check the disk or the file server, then mount it again.",
    ),
    "folder_hangs": _nothing("A folder that a run uses does not answer.", "Programs that use it wait until it does."),
    "folder_read_only": _nothing("A folder that a run uses can only be read.", "Mount it again, or use another."),
    "disk_full": _nothing("A disk is full.", "Remove files, or runs here cannot start or save."),
    "clock_off": _nothing("The host's clock is wrong.", "Set up NTP."),
    "host_slow": Verdict(
        Action.VENDOR, "The host works slower than its peers.", advice="Check clocks, cooling and other programs."
    ),
    "run_left": _nothing("Processes of a run that has ended still live.", "End them if nobody needs them."),
    "shm_left": _nothing(
        "Shared memory is filling up with files that nothing seems to use.",
        "Delete those that no process has open, or data loaders may fail.",
    ),
})  # fmt: skip


#: devices that are no disks of the host: images that somebody mounted, memory, drives for media
_NO_DISK = re.compile(r"(?:loop|sr|fd|zram|ram)\d")
_SEVERE = Verdict(Action.VENDOR, "The firmware reported a fatal hardware error.", Scope.HOST)


def of(sign: Sign) -> Verdict:
    """The verdict on one sign."""
    if sign.kind == "xid":
        return _of_xid(sign)
    if sign.kind == "sxid":
        return _of_sxid(sign)
    if sign.kind == "hardware_error":  # of what could be recovered, other lines tell more
        return (
            _SEVERE
            if sign.word == "fatal"
            else _nothing("The firmware reported a hardware error that did no harm.")
        )
    if sign.kind in ("read_only", "file_system", "disk_error") and _NO_DISK.match(sign.device):
        return _nothing("A file system or device that is not a disk of the host had an error.")
    return _OTHERS.get(sign.kind, _UNKNOWN)


def of_line(line: str) -> Verdict | None:
    """The verdict on a line; None where it is no sign, perhaps since a pattern has changed."""
    sign = sign_of(line)
    return of(sign) if sign is not None else None


def heals(kind: str) -> bool:
    """Whether the state of this kind of sign may end by itself."""
    verdict = _OTHERS.get(kind)
    return verdict is not None and verdict.heals


def _of_xid(sign: Sign) -> Verdict:
    if sign.code == 154:
        return _RECOVERY.get(sign.word, _UNKNOWN)
    if 144 <= sign.code <= 150:
        minor = _nothing("A link of the GPU (NVLink) reported an error that harms nothing.")
        return _LINK if sign.word == "fatal" else minor
    return _XIDS.get(sign.code, _UNKNOWN)


def _of_sxid(sign: Sign) -> Verdict:
    if sign.word == "fatal":
        what = "A switch between the GPUs (NVSwitch) had a fatal error."
        return Verdict(
            Action.REBOOT,
            what,
            Scope.HOST,
            fails=True,
            advice="Reset all GPUs and switches, or reboot the host.",
        )
    return _nothing("A switch between the GPUs (NVSwitch) reported an error that harms nothing.")
