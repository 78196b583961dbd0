"""A filter of system calls for the sandbox, as the kernel's own small programs (classic BPF).

Namespaces and limits hold a program; the filter takes away what they do not count or what kernels were broken through:
memory that no limit counts, sockets, new namespaces, tracing, keyrings and kernel interfaces.
"""

from __future__ import annotations

import platform
import struct
from dataclasses import dataclass

_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_KILL, _ALLOW, _REFUSE = 0x80000000, 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS = 1, 38
# Offsets in the kernel's `struct seccomp_data`: number of the call, architecture, lower half of the first argument.
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
# CLONE_NEWTIME aside (a signal number there), every flag that makes a namespace.
_NAMESPACE_FLAGS = 0x7E020000
_X32_BIT = 0x40000000


@dataclass(frozen=True)
class Architecture:
    """Numbers of system calls: those refused, and the two that start processes."""

    audit: int
    refused: tuple[int, ...]
    clone: int
    clone3: int


_ARCHITECTURES = {
    "x86_64": Architecture(
        audit=0xC000003E,
        refused=(
            *(319, 447, 29, 30, 31, 64, 68, 240),  # memfd_create memfd_secret shm* semget msgget mq_open
            *(41, 272, 308, 155, 161, 165, 166),  # socket unshare setns pivot_root chroot mount umount2
            *(428, 429, 430, 431, 432, 433, 442),  # the newer mount calls
            *(101, 310, 311, 438, 440),  # ptrace process_vm_* pidfd_getfd process_madvise
            *(248, 249, 250, 298, 321, 323),  # keyrings perf_event_open bpf userfaultfd
            *(425, 426, 427, 303, 304, 300),  # io_uring_* name_to_handle_at open_by_handle_at fanotify_init
            *(
                135,
                175,
                313,
                176,
                246,
                320,
                169,
                167,
                168,
                179,
                163,
            ),  # personality modules kexec reboot swap quota acct
        ),
        clone=56,
        clone3=435,
    ),
    "aarch64": Architecture(
        audit=0xC00000B7,
        refused=(
            *(279, 447, 194, 195, 196, 190, 186, 180),
            *(198, 97, 268, 41, 51, 40, 39),
            *(428, 429, 430, 431, 432, 433, 442),
            *(117, 270, 271, 438, 440),
            *(217, 218, 219, 241, 280, 282),
            *(425, 426, 427, 264, 265, 262),
            *(92, 105, 273, 106, 104, 294, 142, 224, 225, 60, 89),
        ),
        clone=220,
        clone3=435,
    ),
}


def build_filter(machine: str = platform.machine()) -> bytes | None:
    """Return the filter for a machine, or None for one whose system calls are not listed here."""
    if (architecture := _ARCHITECTURES.get(machine)) is None:
        return None
    # Jumps count instructions to skip, so the ends come first: each call is compared and returned at once.
    program = [
        _statement(_LOAD, _ARCHITECTURE),
        _jump(_JUMP_EQUAL, architecture.audit, 1, 0),
        _statement(_RETURN, _KILL),
        _statement(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        program += [_jump(_JUMP_GREATER_EQUAL, _X32_BIT, 0, 1), _statement(_RETURN, _KILL)]
    # The C library falls back on clone, whose flags can be looked at.
    program += [_jump(_JUMP_EQUAL, architecture.clone3, 0, 1), _statement(_RETURN, _REFUSE | _ENOSYS)]
    for number in sorted(architecture.refused):
        program += [_jump(_JUMP_EQUAL, number, 0, 1), _statement(_RETURN, _REFUSE | _EPERM)]
    program += [
        _jump(_JUMP_EQUAL, architecture.clone, 0, 3),
        _statement(_LOAD, _FIRST_ARGUMENT),
        _jump(_JUMP_ANY_BIT, _NAMESPACE_FLAGS, 0, 1),
        _statement(_RETURN, _REFUSE | _EPERM),
        _statement(_RETURN, _ALLOW),
    ]
    return b"".join(program)


def _statement(code: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, 0, 0, value)


def _jump(code: int, value: int, if_true: int, if_false: int) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
