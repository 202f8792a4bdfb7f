"""A seccomp filter for the sandbox: system calls that no explainer needs, and that widen the kernel's attack surface.

Denied are new namespaces, memory that belongs to no process (which no limit would count), tracing, keyrings, mounts,
and the interfaces of most kernel exploits (bpf, io_uring, userfaultfd, perf). A denied call fails with ``EPERM``.

Source: seccomp(2), and the tables of system calls of Linux for x86-64 and for the generic architecture (aarch64).
"""

from __future__ import annotations

import errno
import platform
import struct

#: Machine -> architecture in ``struct seccomp_data`` (linux/audit.h), number of ``clone``, and the denied calls.
_X86_64 = {
    **{"unshare": 272, "setns": 308, "memfd_create": 319, "memfd_secret": 447, "shmget": 29},
    **{"add_key": 248, "request_key": 249, "keyctl": 250, "ptrace": 101, "bpf": 321, "perf_event_open": 298},
    **{"process_vm_readv": 310, "process_vm_writev": 311, "userfaultfd": 323, "io_uring_setup": 425},
    **{"mount": 165, "umount2": 166, "pivot_root": 155, "open_tree": 428, "move_mount": 429, "fsopen": 430},
    **{"fsmount": 432, "mount_setattr": 442},
}
_GENERIC = {
    **{"unshare": 97, "setns": 268, "memfd_create": 279, "memfd_secret": 447, "shmget": 194},
    **{"add_key": 217, "request_key": 218, "keyctl": 219, "ptrace": 117, "bpf": 280, "perf_event_open": 241},
    **{"process_vm_readv": 270, "process_vm_writev": 271, "userfaultfd": 282, "io_uring_setup": 425},
    **{"mount": 40, "umount2": 39, "pivot_root": 41, "open_tree": 428, "move_mount": 429, "fsopen": 430},
    **{"fsmount": 432, "mount_setattr": 442},
}
_MACHINES = {"x86_64": (0xC000003E, 56, _X86_64), "aarch64": (0xC00000B7, 220, _GENERIC)}
_CLONE3 = 435  # on both
#: All flags of ``clone`` for a new namespace.
_NAMESPACES = 0x7E020000
#: System calls of the x32 ABI, which run on x86-64 under other numbers.
_X32 = 0x40000000

# Opcodes of classic BPF, offsets in ``struct seccomp_data`` and results of a filter (linux/filter.h, linux/seccomp.h).
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000


def is_supported() -> bool:
    """Return whether there is a filter for this machine."""
    return platform.machine() in _MACHINES


def filter_program(*, allow_memory_files: bool = False) -> bytes:
    """Return the filter as an array of ``struct sock_filter``, for ``bwrap --seccomp``.

    Args:
        allow_memory_files: Allow ``memfd_create``, which drivers of GPUs use.

    Raises:
        KeyError: If there is none for this machine (:func:`is_supported`).
    """
    architecture, clone, calls = _MACHINES[platform.machine()]
    denied = sorted(number for name, number in calls.items() if not (allow_memory_files and name == "memfd_create"))
    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        # Its flags are behind a pointer, which a filter cannot follow; libraries then use clone.
        (_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
    ]
    for number in denied:
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERROR | errno.EPERM)]
    lines += [
        (_EQUAL, 0, 3, clone),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_ANY_BIT, 0, 1, _NAMESPACES),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
